// Tests sets that are opened by their set index alone: they are those that a list gives, and what
// does not fit is listed instead or noticed at the first read.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "base/atomic_file.h"
#include "base/descriptor.h"
#include "base/open_file.h"
#include "pipeline/readers/listing.h"
#include "pipeline/readers/set_index.h"
#include "pipeline/readers/tar.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::expect_data_error;
using test::read_bytes;
using test::TarBuilder;
using test::TempFolder;

/// Most listed samples with which every set, or none, is opened by its set index.
constexpr std::uint64_t kNone = 0, kAll = UINT64_MAX;

std::unique_ptr<Reader> opened(const std::string& path, std::uint64_t max_listed,
                               IndexUse use = IndexUse::automatic, std::string* warning = nullptr,
                               const std::string& split = "train") {
  DataOptions options;
  options.reader = "tar";
  options.path = path;
  options.split = split;
  options.index = use;
  if (warning != nullptr) options.warn = [warning](const std::string& text) { *warning += text; };
  return open_tar(options, max_listed);
}

TarBuilder labelled_archive(int first, int count) {
  TarBuilder tar;
  for (int i = first; i < first + count; ++i)
    tar.add(fmt::format("{:05}.jpg", i), Bytes(static_cast<std::size_t>(i % 900 + 1), 9))
        .add(fmt::format("{:05}.cls", i), std::to_string(i % 3));
  return tar;
}

TarBuilder archive_of_classes(int count) {
  TarBuilder tar;
  for (int i = 0; i < count; ++i)
    tar.add(fmt::format("{}/{}.jpg",
                        i % 2 == 0   ? "cat"
                        : i % 3 == 0 ? "ant"
                                     : "dog",
                        i),
            Bytes(20, static_cast<std::uint8_t>(i)));
  return tar;
}

void expect_same_set(const std::string& path, const std::string& split = "train") {
  const auto listed = opened(path, kAll, IndexUse::require, nullptr, split);
  const auto unlisted = opened(path, kNone, IndexUse::require, nullptr, split);
  test::expect_same_samples(*listed, *unlisted);
  const DatasetInfo &one = listed->info(), &two = unlisted->info();
  EXPECT_EQ(one.fingerprint, two.fingerprint);
  EXPECT_EQ(one.bytes, two.bytes);
  EXPECT_EQ(one.classes, two.classes);
  ASSERT_EQ(one.archives.size(), two.archives.size());
  for (std::size_t i = 0; i < one.archives.size(); ++i) {
    EXPECT_EQ(one.archives[i].name, two.archives[i].name);
    EXPECT_EQ(one.archives[i].sha256, two.archives[i].sha256);
    EXPECT_EQ(one.archives[i].fingerprint, two.archives[i].fingerprint);
  }
  for (std::uint64_t i = 0; i < one.count; ++i) {
    EXPECT_EQ(listed->name(i), unlisted->name(i));
    Location here, there;
    EXPECT_TRUE(listed->locate(i, here) && unlisted->locate(i, there));
    EXPECT_STREQ(here.path.data(), there.path.data());
    EXPECT_EQ(here.offset, there.offset);
  }
}

TEST(SetOpening, GivesTheSetThatAListGives) {
  const TempFolder folder;
  folder.write("train-0.tar", labelled_archive(0, 40).end());
  folder.write("train-1.tar", labelled_archive(40, 7).end());
  folder.write("train-2.tar", labelled_archive(47, 60).end());
  folder.write("test-0.tar", labelled_archive(200, 9).end());
  tools::make_indexes(folder.path(), {});
  expect_same_set(folder.path());
  expect_same_set(folder.path(), "test");
  expect_same_set(folder.path("train-1.tar"));
  expect_same_set(folder.path("train-{1..2}.tar"));
  const TempFolder classes;
  classes.write("train/0.tar", archive_of_classes(40).end());
  classes.write("train/1.tar", archive_of_classes(11).end());
  tools::make_indexes(classes.path(), {});
  expect_same_set(classes.path());
}

/// Makes the records of an archive's index useless, but not its header.
void damage_records(const std::string& file) {
  const base::Descriptor index(::open(index_path(file).c_str(), O_WRONLY | O_CLOEXEC));
  const char other = '\x7f';
  ASSERT_EQ(pwrite(index.get(), &other, 1, 184 + 16), 1);  // a label
}

TEST(SetOpening, ReadsNoRecordBeforeItIsNeeded) {
  const TempFolder folder;
  folder.write("train-0.tar", labelled_archive(0, 40).end());
  const std::string damaged = folder.write("train-1.tar", labelled_archive(40, 40).end());
  tools::make_indexes(folder.path(), {});
  damage_records(damaged);
  std::string warning;
  const auto reader = opened(folder.path(), kNone, IndexUse::automatic, &warning);
  EXPECT_EQ(warning, "") << "a list would have noticed the damage";
  Buffer scratch;
  EXPECT_EQ(reader->read(39, scratch).label, 0);
  for (const std::uint64_t i : {40, 79, 40})
    expect_data_error({damaged + ".index", "damaged: wrong checksum"},
                      [&] { reader->read(i, scratch); });
  EXPECT_EQ(reader->name(79), damaged + " sample 39");
  EXPECT_EQ(reader->read(1, scratch).label, 1);
  opened(folder.path(), kAll, IndexUse::automatic, &warning);
  EXPECT_NE(warning.find("train-1.tar.index"), std::string::npos) << warning;
}

TEST(SetOpening, ALabelBeyondTheClassesOfTheSetFailsItsSample) {
  const TempFolder folder;
  folder.write("train-0.tar", labelled_archive(0, 40).end());
  tools::make_indexes(folder.path(), {});
  Bytes set = read_bytes(folder.path(kSetIndexFile));
  ASSERT_EQ(set[64 + 56], 2) << "the largest label";
  set[64 + 56] = 1;
  seal_set_index(set);
  folder.write(kSetIndexFile, set);
  const auto reader = opened(folder.path(), kNone);
  Buffer scratch;
  EXPECT_EQ(reader->read(1, scratch).label, 1);
  expect_data_error({"train-0.tar.index", "label 2"}, [&] { reader->read(2, scratch); });
}

TEST(SetOpening, ListsWhatDoesNotFit) {
  const TempFolder folder;
  folder.write("train-0.tar", labelled_archive(0, 40).end());
  const std::string file = folder.write("train-1.tar", labelled_archive(40, 40).end());
  tools::make_indexes(folder.path(), {});
  damage_records(folder.path("train-0.tar"));  // seen by a list only
  const auto expect_listed = [&](const std::string& why, const std::string& expected) {
    SCOPED_TRACE(why);
    std::string warning;
    EXPECT_EQ(opened(folder.path(), kNone, IndexUse::automatic, &warning)->info().count, 80u);
    EXPECT_NE(warning.find(expected), std::string::npos) << warning;
  };
  const Bytes set = read_bytes(folder.path(kSetIndexFile)), index = read_bytes(index_path(file));
  opened(folder.path(), kNone, IndexUse::require);
  folder.write(kSetIndexFile, test::cut(set, set.size() - 1));
  expect_listed("a damaged set index", "train-0.tar.index");
  Bytes other = set;
  other[64 + 96 + 16] = 39;  // samples of the second archive
  seal_set_index(other);
  folder.write(kSetIndexFile, other);
  expect_listed("a set index of other archives", "train-0.tar.index");
  folder.write(kSetIndexFile, set);
  folder.write("train-1.tar.index", test::cut(index, 100));
  expect_listed("a truncated index", "1 other archive");
  test::fs::remove(index_path(file));
  test::fs::create_directory(index_path(file));
  expect_listed("an index that cannot be read", "train-0.tar.index");
}

std::uint64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Writes an archive without content, whose index lists `samples` in it. Returns its entry in a
/// set.
SetIndex::Shard write_holes(const std::string& file, std::uint64_t samples) {
  std::ofstream(file, std::ios::binary).put('\0');
  test::fs::resize_file(file, 1024 * samples);
  ShardIndex index;
  index.shard = test::fs::path(file).filename();
  index.tar.folders = {""};
  for (std::uint64_t i = 0; i < samples; ++i) {
    index.tar.samples.push_back({1024 * i + 512, 512, 512, static_cast<std::int32_t>(i % 1000), 0});
    index.tar.name_at.push_back(0);
  }
  index.tar.names = std::string("x\0", 2);
  const base::OpenFile open = base::open_regular(file);
  index.stamp = stamp_of(open.descriptor.get(), file);
  const std::vector<std::byte> bytes = to_bytes(index);
  base::AtomicFile out(index_path(file));
  out.write(bytes);
  out.replace();
  SetIndex::Shard shard;
  shard.name = index.shard;
  shard.size = 1024 * samples;
  shard.index_size = bytes.size();
  shard.samples = samples;
  shard.image_bytes = 512 * samples;
  shard.largest_label = 999;
  shard.folders = {""};
  return shard;
}

TEST(SetOpening, TakesNoMemoryPerSample) {
  constexpr std::uint64_t kSamples = 1'000'000;
  const TempFolder folder;
  SetIndex set;
  set.shards.push_back(write_holes(folder.path("train-0.tar"), kSamples / 2));
  set.shards.push_back(write_holes(folder.path("train-1.tar"), kSamples / 2));
  base::AtomicFile out(folder.path(kSetIndexFile));
  out.write(to_bytes(set));
  out.replace();
  const std::uint64_t before = resident_memory();  // a list would take 24 MB
  const auto unlisted = opened(folder.path(), kNone, IndexUse::require);
  EXPECT_EQ(unlisted->info().count, kSamples);
  EXPECT_LT(resident_memory(), before + (4u << 20));
  Buffer scratch;
  EXPECT_EQ(unlisted->read(kSamples - 1, scratch).label, 999);
  EXPECT_LT(resident_memory(), before + (4u << 20)) << "nor does reading";
}

TEST(SetOpening, ServesManyThreads) {
  const TempFolder folder;
  for (int shard = 0; shard < 8; ++shard)
    folder.write(fmt::format("train-{}.tar", shard), labelled_archive(100 * shard, 100).end());
  tools::make_indexes(folder.path(), {});
  const auto reader = opened(folder.path(), kNone, IndexUse::require);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      Buffer scratch;
      for (std::uint64_t i = 0; i < 800; ++i) {
        const Sample sample = reader->read(i * 37 % 800, scratch);
        wrong += sample.label != static_cast<std::int64_t>(i * 37 % 800 % 3);
        wrong += sample.bytes.size() != i * 37 % 800 % 900 + 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace millrace::pipeline
