// Tests the layer between a reader and its files: data.cache, generated images, and files that
// change under a mapping.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "base/mapped_file_guard.h"
#include "pipeline/readers/mapped_file.h"
#include "pipeline/readers/storage.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tests/pipeline/numbered.h"

namespace millrace::pipeline {
namespace {

namespace fs = test::fs;
using test::Bytes;
using test::bytes_of;
using test::expect_data_error;
using test::expect_error;
using test::TarBuilder;
using test::TempFolder;

std::unique_ptr<Reader> open(const std::string& reader, const std::string& path, Cache cache,
                             std::string* warning = nullptr) {
  DataOptions options;
  options.reader = reader;
  options.path = path;
  options.cache = cache;
  options.warn = [warning](const std::string& text) {
    if (warning != nullptr) *warning += text;
  };
  return open_reader(options);
}

/// Counts what is announced to it.
class Announced final : public Numbered {
 public:
  explicit Announced(std::vector<std::uint64_t>& log) : Numbered(4), log_(log) {
    info_.bytes = 4 * kBytes;
  }
  std::uint64_t lookahead() const override { return 3; }
  void expect(std::uint64_t index) const override { log_.push_back(index); }

 private:
  std::vector<std::uint64_t>& log_;
};

TEST(CacheOfData, WhatIsNotInMemoryYetIsAnnounced) {
  std::vector<std::uint64_t> log;
  const auto reader = make_ram_reader(std::make_unique<Announced>(log));
  EXPECT_EQ(reader->lookahead(), 3u);
  Buffer scratch;
  reader->read(1, scratch);
  for (std::uint64_t i = 0; i < 4; ++i) reader->expect(i);
  EXPECT_EQ(log, (std::vector<std::uint64_t>{0, 2, 3}));
}

/// Writes the same images as a folder, an archive and a manifest, with IDX and CIFAR files beside
/// them.
void write_sets(const TempFolder& folder) {
  TarBuilder tar;
  std::string manifest = "path,label\n";
  for (int i = 0; i < 20; ++i) {
    const Bytes bytes(static_cast<std::size_t>(1000 + 997 * i), static_cast<std::uint8_t>(i));
    const std::string name = "c" + std::to_string(i % 3) + "/" + std::to_string(10 + i) + ".jpg";
    folder.write("folder/" + name, bytes);
    tar.add(name, bytes);
    manifest += "../folder/" + name + "," + std::to_string(i % 3) + "\n";
  }
  folder.write("tar/train.tar", tar.end());
  folder.write("manifest/train.csv", test::bytes_from(manifest));
  folder.write("idx/train-images-idx3-ubyte", test::idx_images(30, 40, 30));
  folder.write("idx/train-labels-idx1-ubyte", test::idx_labels(Bytes(30, 3)));
  Bytes cifar;
  for (int i = 0; i < 15; ++i) {
    cifar.push_back(static_cast<std::uint8_t>(i % 10));
    cifar.resize(cifar.size() + 3072, static_cast<std::uint8_t>(i));
  }
  for (const char* n : {"1", "2", "3", "4", "5"})
    folder.write(std::string("cifar/data_batch_") + n + ".bin", cifar);
}

constexpr const char* kReaders[] = {"folder", "tar", "manifest", "idx", "cifar"};

TEST(CacheOfData, TheSameBytesWhateverTheCache) {
  const TempFolder folder;
  write_sets(folder);
  for (const char* name : kReaders) {
    const auto os = open(name, folder.path(name), Cache::os);
    for (const Cache cache : {Cache::ram, Cache::cold}) {
      const auto other = open(name, folder.path(name), cache);
      ASSERT_EQ(other->info().count, os->info().count);
      EXPECT_EQ(other->info().fingerprint, os->info().fingerprint);
      Buffer one, two;
      for (int round = 0; round < 2; ++round)
        for (std::uint64_t i = 0; i < os->info().count; ++i) {
          const Sample expected = os->read(i, one);
          const Sample sample = other->read(i, two);
          ASSERT_EQ(sample.label, expected.label) << name << " " << i;
          ASSERT_TRUE(std::ranges::equal(sample.bytes, expected.bytes)) << name << " " << i;
          EXPECT_EQ(sample.held, cache == Cache::ram && round == 1);
        }
      EXPECT_EQ(other->name(1), os->name(1));
    }
  }
}

TEST(CacheOfData, RamNeedsNoFileAfterTheFirstRead) {
  const TempFolder folder;
  write_sets(folder);
  const auto reader = open("folder", folder.path("folder"), Cache::ram);
  const Bytes before = bytes_of(*reader, 7);
  fs::remove_all(folder.path("folder"));
  EXPECT_EQ(bytes_of(*reader, 7), before);
  expect_data_error({"cannot be read"}, [&] { bytes_of(*reader, 8); });
  expect_data_error({"cannot be read"}, [&] { bytes_of(*reader, 8); });  // again: nothing is kept
}

TEST(CacheOfData, RamFromManyThreads) {
  const TempFolder folder;
  write_sets(folder);
  const auto os = open("folder", folder.path("folder"), Cache::os);
  const auto reader = open("folder", folder.path("folder"), Cache::ram);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round)
        for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(bytes_of(*reader, i), bytes_of(*os, i));
    });
}

TEST(CacheOfData, RamIsRefusedWhereItDoesNotFit) {
  const TempFolder folder;
  folder.write("c/1.jpg", {1});
  // A hole, which takes no room on the disk.
  fs::resize_file(folder.path("c/1.jpg"), 4'000'000'000);
  const std::uint64_t copies = free_memory() / 4'000'000'000 + 1;
  for (std::uint64_t i = 2; i <= copies; ++i)
    fs::create_hard_link(folder.path("c/1.jpg"), folder.path("c/" + std::to_string(i) + ".jpg"));
  expect_error(Exit::usage, {"data.cache=ram", "MB are free"},
               [&] { open("folder", folder.path(), Cache::ram); });
  EXPECT_GT(free_memory(), 1'000'000u);
}

/// Returns the number of a file's pages that are in memory.
std::size_t resident(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto size = static_cast<std::size_t>(fs::file_size(path));
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  std::vector<unsigned char> pages((size + 4095) / 4096);
  mincore(memory, size, pages.data());
  munmap(memory, size);
  close(file);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

TEST(CacheOfData, ColdThrowsOutBeforeEveryRead) {
  const TempFolder folder("/var/tmp");  // on a disk, also where temporary files are in memory
  write_sets(folder);
  const std::string file = folder.write("one/c/1.jpg", Bytes(200'000, 7));
  const auto probe = open("folder", folder.path("one"), Cache::cold);
  bytes_of(*probe, 0);
  if (probe->cold().proven == 0)
    GTEST_SKIP() << "this file system keeps its pages: " << folder.path();
  for (const char* name : kReaders) {
    std::string warning;
    const auto reader = open(name, folder.path(name), Cache::cold, &warning);
    EXPECT_FALSE(reader->info().in_place);
    for (int round = 0; round < 3; ++round)
      for (std::uint64_t i = 0; i < reader->info().count; ++i) bytes_of(*reader, i);
    EXPECT_EQ(reader->cold().proven, 3 * reader->info().count) << name;
    EXPECT_EQ(reader->cold().resident, 0u) << name;
    EXPECT_EQ(warning, "");
  }
}

TEST(CacheOfData, ColdSaysWhenPagesStay) {
  const TempFolder folder("/var/tmp");  // on a disk, also where temporary files are in memory
  const std::string file = folder.write("c/1.jpg", Bytes(200'000, 7));
  {
    const auto probe = open("folder", folder.path(), Cache::cold);
    bytes_of(*probe, 0);
    if (probe->cold().proven == 0) GTEST_SKIP() << "this file system keeps its pages";
  }
  // Stands for another user of the file: mapped pages stay.
  const MappedFile mapped = MappedFile::map(file);
  std::uint64_t sum = 0;
  for (const std::uint8_t byte : mapped.bytes()) sum += byte;
  EXPECT_EQ(sum, 7u * 200'000);
  EXPECT_GT(resident(file), 0u);
  std::string warning;
  const auto reader = open("folder", folder.path(), Cache::cold, &warning);
  bytes_of(*reader, 0);
  const std::string once = warning;
  bytes_of(*reader, 0);
  EXPECT_EQ(reader->cold().resident, 2u);
  EXPECT_EQ(reader->cold().proven, 0u);
  EXPECT_NE(once.find(file), std::string::npos);
  EXPECT_EQ(warning, once) << "it is said once";
  mapped.let_go();
  EXPECT_EQ(bytes_of(*reader, 0), Bytes(200'000, 7));
  EXPECT_EQ(reader->cold().proven, 1u);
}

TEST(CacheOfData, ColdIsRefusedWithoutAFile) {
  const TempFolder folder;
  folder.write("train-images-idx3-ubyte.gz", test::gzip(test::idx_images(3)));
  folder.write("train-labels-idx1-ubyte.gz", test::gzip(test::idx_labels({1, 2, 3})));
  expect_error(Exit::usage, {"data.cache=cold", folder.path()},
               [&] { open("idx", folder.path(), Cache::cold); });
  expect_error(Exit::usage, {"data.cache=cold"}, [&] { open("synthetic", "", Cache::cold); });
  EXPECT_EQ(bytes_of(*open("idx", folder.path(), Cache::ram), 1).size(), 12u);
}

TEST(Synthetic, ImagesAreAFunctionOfTheirIndex) {
  DataOptions options;
  options.reader = "synthetic";
  options.synthetic = {500, {9, 7}, 3, 4};
  const auto reader = open_reader(options);
  const auto again = open_reader(options);
  EXPECT_EQ(reader->info().count, 500u);
  EXPECT_EQ(reader->info().size, (Size{9, 7}));
  EXPECT_EQ(reader->info().channels, 3);
  EXPECT_EQ(reader->info().classes.size(), 4u);
  EXPECT_EQ(reader->info().fingerprint, again->info().fingerprint);
  std::set<std::string> different;
  Buffer none;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Bytes bytes = bytes_of(*reader, i);
    different.insert(std::string(bytes.begin(), bytes.end()));
    EXPECT_EQ(bytes_of(*reader, i), bytes_of(*again, i));
    EXPECT_EQ(reader->read(i, none).label, static_cast<std::int64_t>(i % 4));
  }
  EXPECT_GT(different.size(), 490u);
  options.split = "test";
  const auto test = open_reader(options);
  EXPECT_NE(bytes_of(*test, 0), bytes_of(*reader, 0));
  EXPECT_NE(test->info().fingerprint, reader->info().fingerprint);
  options.synthetic.channels = 2;
  expect_error(Exit::usage, {"data.synthetic.channels=2"}, [&] { open_reader(options); });
}

TEST(MappedFiles, OneThatIsCutShortIsAnErrorOfItsSamples) {
  const TempFolder folder;
  write_sets(folder);
  const std::string file = folder.path("cifar/data_batch_5.bin");
  const auto reader = open("cifar", folder.path("cifar"), Cache::os);
  const auto in_ram = open("cifar", folder.path("cifar"), Cache::ram);
  const std::uint64_t last = reader->info().count - 1;
  const Bytes first = bytes_of(*reader, 0);
  const std::uint64_t before = base::mapped_faults();
  Buffer scratch;
  const Sample borrowed = reader->read(last, scratch);
  fs::resize_file(file, 10'000);
  std::uint64_t sum = 0;
  for (const std::uint8_t byte : borrowed.bytes) sum += byte;  // SIGBUS, if it were not caught
  EXPECT_EQ(sum, 0u);
  EXPECT_GT(base::mapped_faults(), before);
  EXPECT_EQ(bytes_of(*reader, 0), first) << "what is still there can be read";
  expect_data_error({file, "changed while the set is in use: 10000 bytes"},
                    [&] { bytes_of(*reader, last); });
  expect_data_error({file, "changed"}, [&] { bytes_of(*in_ram, last); });
  EXPECT_NE(reader->name(last).find(file), std::string::npos);
}

TEST(MappedFilesDeathTest, OtherBusErrorsStillEndTheProcess) {
  const TempFolder folder;
  const std::string file = folder.write("x", Bytes(10'000, 1));
  const MappedFile guarded = MappedFile::map(file);
  EXPECT_EXIT(
      {
        const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
        auto* memory = static_cast<volatile char*>(
            mmap(nullptr, 10'000, PROT_READ, MAP_SHARED, descriptor, 0));
        if (ftruncate(descriptor, 0) == 0) static_cast<void>(memory[5000]);
      },
      [](int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; }, "");
}

}  // namespace
}  // namespace millrace::pipeline
