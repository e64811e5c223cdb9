// Tests index files: they give the same set as a walk, and one that is stale, damaged or another
// archive's is noticed and named. Tests the cache of listings, too.
#include "pipeline/readers/shard_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/atomic_file.h"
#include "base/descriptor.h"
#include "base/folder.h"
#include "base/open_file.h"
#include "millrace/reader.h"
#include "pipeline/decoders/image_files.h"
#include "pipeline/readers/folder.h"
#include "pipeline/readers/listing.h"
#include "pipeline/readers/set_index.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

namespace fs = test::fs;
using test::Bytes;
using test::bytes_of;
using test::expect_data_error;
using test::read_bytes;
using test::TarBuilder;
using test::TempFolder;

/// Folder of cached listings for the life of this object.
class CacheFolder {
 public:
  CacheFolder() { setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  ~CacheFolder() { setenv("XDG_CACHE_HOME", before_.c_str(), 1); }
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    if (fs::exists(listing_cache()))
      for (const auto& entry : fs::directory_iterator(listing_cache())) all.push_back(entry.path());
    return all;
  }

 private:
  const char* was_ = std::getenv("XDG_CACHE_HOME");
  std::string before_ = was_ == nullptr ? "" : was_;
  TempFolder folder_;
};

std::unique_ptr<Reader> open(const std::string& path, IndexUse use, std::string* warning = nullptr,
                             const std::string& split = "train") {
  DataOptions options;
  options.reader = "tar";
  options.path = path;
  options.split = split;
  options.index = use;
  if (warning != nullptr) options.warn = [warning](const std::string& text) { *warning += text; };
  return open_reader(options);
}

TarBuilder samples(int count, int first = 0) {
  TarBuilder tar;
  tar.long_name(std::string(120, 'n') + ".jpg").add("x", Bytes(700, 1));
  tar.long_name(std::string(120, 'n') + ".cls").add("x", "1");
  for (int i = first; i < first + count - 1; ++i)
    tar.add(std::to_string(i) + ".jpg", Bytes(static_cast<std::size_t>(i % 7 + 1), 9))
        .add(std::to_string(i) + ".cls", std::to_string(i % 3));
  return tar;
}

void expect_same(const Reader& one, const Reader& two) {
  test::expect_same_samples(one, two);
  EXPECT_EQ(one.info().fingerprint, two.info().fingerprint);
  EXPECT_EQ(one.info().bytes, two.info().bytes);
  for (std::uint64_t i = 0; i < std::min(one.info().count, two.info().count); ++i)
    EXPECT_EQ(one.name(i), two.name(i));
}

/// Makes a file seem to be old.
void age(const std::string& file) {
  const timespec then[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), then, 0), 0);
}

/// Changes a byte of an archive's first image, and restores the modification time.
void change_in_place(const std::string& file) {
  struct stat status {};
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  const base::Descriptor open(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  const char other = 'y';
  ASSERT_EQ(pwrite(open.get(), &other, 1, 1536), 1);
  const timespec times[] = {status.st_atim, status.st_mtim};
  ASSERT_EQ(futimens(open.get(), times), 0);
}

TEST(ShardIndex, GivesTheSameSetAsTheWalk) {
  const TempFolder folder;
  folder.write("train-0.tar", samples(40).end());
  folder.write("train-1.tar", samples(30, 100).end());
  folder.write("test-0.tar", samples(10).end());
  const tools::IndexReport report = tools::make_indexes(folder.path(), {});
  EXPECT_EQ(report.files.size(), 3u);
  std::string warning;
  for (const char* split : {"train", "test"})
    expect_same(*open(folder.path(), IndexUse::off, nullptr, split),
                *open(folder.path(), IndexUse::require, &warning, split));
  expect_same(*open(folder.path(), IndexUse::off),
              *open(folder.path(), IndexUse::automatic, &warning));
  EXPECT_EQ(warning, "");

  // Folders as classes, and a split inside of the archive.
  const TempFolder classes;
  TarBuilder tar;
  for (const char* name : {"s/train/cat/1.jpg", "s/train/dog/1.jpg", "s/val/cat/9.jpg"})
    tar.add(name, Bytes{1});
  const std::string file = classes.write("set.tar", tar.end());
  EXPECT_EQ(tools::make_indexes(file, {}).set_file, "");
  for (const char* split : {"train", "test"})
    expect_same(*open(file, IndexUse::off, nullptr, split),
                *open(file, IndexUse::require, nullptr, split));
}

TEST(ShardIndex, HoldsWhatTheArchiveHolds) {
  const TempFolder folder;
  const std::string file = folder.write("a.tar", samples(5).end());
  tools::make_indexes(file, {});
  const ShardIndex index = read_shard_index(file, true);
  EXPECT_EQ(index.shard, "a.tar");
  EXPECT_EQ(index.stamp.size, fs::file_size(file));
  ASSERT_EQ(index.tar.samples.size(), 5u);
  EXPECT_EQ(index.tar.names.c_str() + index.tar.name_at[0], std::string(120, 'n') + ".jpg");
  EXPECT_EQ(index.tar.names.c_str() + index.tar.name_at[4], std::string("3.jpg"));
  EXPECT_EQ(read_bytes(file)[index.tar.samples[4].data], 9);
  EXPECT_EQ(index.tar.samples[4].size, 4u);
  EXPECT_EQ(index.tar.samples[4].label, 0);
}

TEST(ShardIndex, OfAnotherStampIsStale) {
  const TempFolder folder;
  const std::string file = folder.write("a.tar", samples(20).end());
  tools::make_indexes(file, {});
  const auto expect_stale = [&](const std::string& how) {
    std::string warning;
    expect_same(*open(file, IndexUse::off), *open(file, IndexUse::automatic, &warning));
    EXPECT_NE(warning.find(file + ".index: the index is stale: the " + how), std::string::npos)
        << warning;
    expect_data_error({file + ".index", "stale", how}, [&] { open(file, IndexUse::require); });
    tools::make_indexes(file, {});
    open(file, IndexUse::require);
  };
  change_in_place(file);
  expect_stale("change time differs");
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  expect_stale("modification time differs");
  folder.write("a.tar", samples(21).end());
  expect_stale("size differs");
  fs::remove(file + ".index");
  expect_data_error({file, "has no index"}, [&] { open(file, IndexUse::require); });

  // A copy with its times kept is what the index describes.
  tools::make_indexes(file, {});
  const std::string copy = folder.path("copy");
  fs::create_directory(copy);
  for (const char* name : {"/a.tar", "/a.tar.index"}) {
    fs::copy_file(folder.path() + name, copy + name);
    fs::last_write_time(copy + name, fs::last_write_time(folder.path() + name));
  }
  open(copy + "/a.tar", IndexUse::require);
}

TEST(ShardIndex, OfOtherDecodersIsSetAside) {
  const TempFolder folder;
  const std::string file = folder.write("a.tar", samples(20).end());
  tools::make_indexes(file, {});
  ShardIndex index = read_shard_index(file, true);
  EXPECT_EQ(index.tar.formats, image_formats());
  index.tar.formats ^= 1;
  const std::vector<std::byte> bytes = to_bytes(index);
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  folder.write("a.tar.index", Bytes(first, first + bytes.size()));
  std::string warning;
  expect_same(*open(file, IndexUse::off), *open(file, IndexUse::automatic, &warning));
  EXPECT_NE(warning.find("a.tar.index: the index was made with other decoders"), std::string::npos)
      << warning;
  expect_data_error({"a.tar.index", "other decoders"}, [&] { open(file, IndexUse::require); });
}

TEST(ShardIndex, OfManyStaleOnesTheFirstIsNamed) {
  const TempFolder folder;
  for (const char* name : {"a.tar", "b.tar", "c.tar"}) folder.write(name, samples(4).end());
  tools::make_indexes(folder.path(), {});
  for (const char* name : {"a.tar", "b.tar", "c.tar"}) folder.write(name, samples(5).end());
  std::string warning;
  EXPECT_EQ(open(folder.path(), IndexUse::automatic, &warning)->info().count, 15u);
  EXPECT_NE(warning.find("a.tar.index"), std::string::npos) << warning;
  EXPECT_NE(warning.find("2 other archives"), std::string::npos) << warning;
}

TEST(ShardIndex, OfAnotherArchiveIsRefused) {
  const TempFolder folder;
  const std::string one = folder.write("one.tar", samples(5).end());
  const std::string two = folder.write("two.tar", samples(5).end());
  tools::make_indexes(folder.path(), {});
  fs::copy_file(one + ".index", two + ".index", fs::copy_options::overwrite_existing);
  for (const IndexUse use : {IndexUse::automatic, IndexUse::require})
    expect_data_error({two + ".index", "belongs to another archive, one.tar"},
                      [&] { open(two, use); });
  open(two, IndexUse::off);
}

TEST(ShardIndex, DamageAnywhereIsNoticed) {
  const TempFolder folder;
  const std::string file = folder.write("a.tar", samples(3).end());
  tools::make_indexes(file, {});
  const Bytes whole = read_bytes(file + ".index");
  parse_shard_index("x", whole);
  for (std::size_t size = 0; size < whole.size(); ++size)
    expect_data_error({"x: "}, [&] { parse_shard_index("x", test::cut(whole, size)); });
  for (std::size_t at = 0; at < whole.size(); ++at) {
    Bytes bytes = whole;
    bytes[at] ^= 0x10;
    expect_data_error({"x: "}, [&] { parse_shard_index("x", bytes); });
  }
  Bytes longer = whole;
  longer.push_back(0);
  expect_data_error({"bytes stand behind its end"}, [&] { parse_shard_index("x", longer); });
  Bytes newer = whole;
  newer[8] = 2;
  expect_data_error({"version 2", "reads version 1"}, [&] { parse_shard_index("x", newer); });
  expect_data_error({"not an index"}, [&] { parse_shard_index("x", read_bytes(file)); });

  folder.write("a.tar.index", test::cut(whole, 300));
  std::string warning;
  EXPECT_EQ(open(file, IndexUse::automatic, &warning)->info().count, 3u);
  EXPECT_NE(warning.find("a.tar.index: the index is truncated: 300 of"), std::string::npos);
  expect_data_error({"a.tar.index", "truncated"}, [&] { open(file, IndexUse::require); });
}

TEST(ShardIndex, RecordsThatContradictTheArchiveAreRefused) {
  const TempFolder folder;
  const std::string file = folder.write("a.tar", samples(3).end());
  tools::make_indexes(file, {});
  const Bytes whole = read_bytes(file + ".index");
  const auto expect_refused = [&](std::size_t at, std::uint8_t value, const std::string& what) {
    Bytes bytes = whole;
    bytes.at(at) = value;
    seal_shard_index(bytes);
    expect_data_error({"x: ", what}, [&] { parse_shard_index("x", bytes); });
  };
  constexpr std::size_t kHeader = 184;
  expect_refused(kHeader + 7, 1, "lies outside the archive");
  expect_refused(kHeader + 11, 1, "lies outside the archive");
  expect_refused(kHeader + 15, 0xff, "lies outside the archive");
  expect_refused(kHeader + 19, 1, "label is out of range");
  expect_refused(kHeader + 20, 9, "folder is missing");
  expect_refused(kHeader + 27, 9, "name is missing");
  expect_refused(64, 9, "records do not fit");
  expect_refused(113, 0xff, "names do not fit");
  expect_refused(120, 2, "number of folders");
  expect_refused(80, 1, "without a label");
  expect_refused(124, 33, "another width");

  ShardIndex far;  // a name would be looked for in so many bytes
  far.shard = "x.tar";
  far.stamp.size = std::uint64_t{1} << 30;
  far.tar.folders = {""};
  far.tar.names = std::string("n\0", 2);
  far.tar.name_at = {0};
  far.tar.samples = {{std::uint64_t{1} << 29, 512, 16 << 20, 0, 0}};
  const auto parse = [&] {
    const auto bytes = to_bytes(far);
    return parse_shard_index("x",
                             {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  };
  EXPECT_EQ(parse().tar.samples[0].back, 16u << 20);
  far.tar.samples[0].back += 512;
  expect_data_error({"x: ", "headers of a sample are too long"}, parse);
}

TEST(SetIndex, ListsTheArchivesInOrder) {
  const TempFolder folder;
  folder.write("train/1.tar", samples(6).end());
  folder.write("train/0.tar", samples(4).end());
  folder.write("val/0.tar", samples(3).end());
  folder.write("classes.txt", test::bytes_from("a\nb\nc\n"));
  const tools::IndexReport report = tools::make_indexes(folder.path(), {});
  EXPECT_EQ(report.set_file, folder.path(kSetIndexFile));
  const Bytes bytes = read_bytes(report.set_file);
  const SetIndex set = parse_set_index("s", bytes);
  ASSERT_EQ(set.shards.size(), 3u);
  EXPECT_EQ(set.shards[0].name, "train/0.tar");
  EXPECT_EQ(set.shards[1].name, "train/1.tar");
  EXPECT_EQ(set.shards[2].name, "val/0.tar");
  EXPECT_EQ(set.shards[1].samples, 6u);
  EXPECT_EQ(set.shards[1].largest_label, 2);
  EXPECT_EQ(set.shards[1].size, fs::file_size(folder.path("train/1.tar")));
  EXPECT_EQ(set.shards[1].index_size, fs::file_size(folder.path("train/1.tar.index")));
  EXPECT_EQ(set.classes, (std::vector<std::string>{"a", "b", "c"}));

  for (std::size_t size = 0; size < bytes.size(); ++size)
    expect_data_error({"s: "}, [&] { parse_set_index("s", test::cut(bytes, size)); });
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    Bytes wrong = bytes;
    wrong[at] ^= 0x10;
    expect_data_error({"s: "}, [&] { parse_set_index("s", wrong); });
  }
  SetIndex large = set;
  large.shards[1].image_bytes = large.shards[1].size + 1;
  expect_data_error({"s: ", "contradict"}, [&] {
    const auto written = to_bytes(large);
    parse_set_index("s", {reinterpret_cast<const std::uint8_t*>(written.data()), written.size()});
  });
  SetIndex outside = set;
  for (const char* name : {"../0.tar", "/etc/0.tar", "a//b.tar", "a\nb.tar", "./a.tar"}) {
    outside.shards[0].name = name;
    const auto written = to_bytes(outside);
    expect_data_error({"s: ", "leads out of its folder"}, [&] {
      parse_set_index("s", {reinterpret_cast<const std::uint8_t*>(written.data()), written.size()});
    });
  }
}

TEST(Verify, ComparesTheContentOfArchivesWithTheirIndexes) {
  const TempFolder folder;
  for (const char* name : {"train-0.tar", "train-1.tar"}) folder.write(name, samples(5).end());
  tools::make_indexes(folder.path(), {});
  EXPECT_EQ(tools::check_indexes(folder.path()), std::vector<std::string>{});
  change_in_place(folder.path("train-1.tar"));
  std::vector<std::string> problems = tools::check_indexes(folder.path());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("train-1.tar.index: the index does not match the archive: it lists "
                             "SHA-256 "),
            std::string::npos);
  tools::make_indexes(folder.path("train-1.tar"), {});
  problems = tools::check_indexes(folder.path());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("train-1.tar: the set index does not match the archive"),
            std::string::npos);
  fs::rename(folder.path("train-1.tar"), folder.path("train-2.tar"));
  problems = tools::check_indexes(folder.path());
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_NE(problems[0].find("does not list train-2.tar"), std::string::npos);
  EXPECT_NE(problems[1].find("lists train-1.tar, which is missing"), std::string::npos);
}

// ---- the cache of listings

TEST(ListingCache, RemovesItsOwnFilesAlone) {
  const CacheFolder cache;
  const TempFolder folder;
  const std::string file = folder.write("a.tar", samples(120).end());
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  open(file, IndexUse::automatic);
  ASSERT_EQ(cache.files().size(), 1u);
  const std::string listing = cache.files()[0];
  const std::string name = fs::path(listing).filename().string().substr(1);
  const auto add = [&](const std::string& named) {
    std::string path = listing_cache() + "/" + named;
    base::AtomicFile(path).commit();
    fs::resize_file(path, std::uintmax_t{1} << 30);  // a hole
    age(path);
    return path;
  };
  const std::string thesis = add("thesis.index"), digits = add("0" + name + ".bak");
  const std::string old = add("0" + name), killed = add("0" + name + ".tmp-123");
  fs::remove(listing);
  open(file, IndexUse::automatic);  // stores a listing, and trims
  EXPECT_TRUE(base::exists(thesis));
  EXPECT_TRUE(base::exists(digits));
  EXPECT_EQ(base::exists(old), old == listing);
  EXPECT_FALSE(base::exists(killed));
}

TEST(ListingCache, KeepsWhatWasWalkedAndNoticesChanges) {
  const CacheFolder cache;
  const TempFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  const std::string file = folder.write("a.tar", samples(120).end());
  const std::uint64_t print = open(file, IndexUse::automatic)->info().fingerprint;
  if (std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) {
    EXPECT_TRUE(cache.files().empty()) << "changed within the clock's granularity";
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  open(file, IndexUse::off);
  EXPECT_TRUE(cache.files().empty());
  open(file, IndexUse::automatic);
  ASSERT_EQ(cache.files().size(), 1u);
  struct stat status {};
  ASSERT_EQ(stat(listing_cache().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);

  // A listing that says something else shows whether it is used.
  const std::string kept = cache.files()[0];
  ShardIndex listing = parse_shard_index("x", read_bytes(kept), true);
  const auto replace = [&](const ShardIndex& by) {
    base::AtomicFile out(kept);
    out.write(to_bytes(by));
    out.commit();
  };
  listing.tar.fingerprint = 42;
  replace(listing);
  EXPECT_NE(open(file, IndexUse::automatic)->info().fingerprint, print);
  EXPECT_EQ(open(file, IndexUse::off)->info().fingerprint, print);

  const FileStamp right = listing.stamp;
  for (std::int64_t FileStamp::*time : {&FileStamp::mtime_ns, &FileStamp::ctime_ns}) {
    listing.stamp = right;
    ++(listing.stamp.*time);
    replace(listing);
    EXPECT_EQ(open(file, IndexUse::automatic)->info().fingerprint, print);
  }
  listing.stamp = right;
  ++listing.stamp.inode;
  replace(listing);
  EXPECT_EQ(open(file, IndexUse::automatic)->info().fingerprint, print);
  listing.stamp = right;
  listing.shard += "x";
  replace(listing);
  EXPECT_EQ(open(file, IndexUse::automatic)->info().fingerprint, print);

  // A folder that others may write, or that is a link, is not used.
  listing.shard.pop_back();
  replace(listing);
  fs::permissions(listing_cache(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(open(file, IndexUse::automatic)->info().fingerprint, print);
  fs::permissions(listing_cache(), fs::perms::others_write, fs::perm_options::remove);
  EXPECT_NE(open(file, IndexUse::automatic)->info().fingerprint, print);
  const TempFolder elsewhere;
  fs::rename(listing_cache(), elsewhere.path("listings"));
  fs::create_directory_symlink(elsewhere.path("listings"), listing_cache());
  EXPECT_EQ(open(file, IndexUse::automatic)->info().fingerprint, print);
}

// ---- a million samples

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Writes an archive of a given size without content, and an index that lists samples in it.
void write_hollow(const std::string& file, int samples) {
  ShardIndex index;
  index.shard = fs::path(file).filename();
  index.tar.folders = {""};
  constexpr std::uint64_t kStride = 4096;
  for (int i = 0; i < samples; ++i) {
    index.tar.samples.push_back({kStride * static_cast<std::uint64_t>(i) + 512, 3000, 512,
                                 static_cast<std::int32_t>(i % 1000), 0});
    index.tar.name_at.push_back(static_cast<std::uint32_t>(index.tar.names.size()));
    index.tar.names += "n01440764_" + std::to_string(100'000 + i) + ".jpg";
    index.tar.names.push_back('\0');
  }
  index.tar.fingerprint = 7;
  std::ofstream(file, std::ios::binary).put('\0');
  fs::resize_file(file, kStride * static_cast<std::uint64_t>(samples) + 1024);
  const base::OpenFile open = base::open_regular(file);
  index.stamp = stamp_of(open.descriptor.get(), file);
  base::AtomicFile out(index_path(file));
  out.write(to_bytes(index));
  out.commit();
}

TEST(ShardIndex, AMillionSamplesOpenWithinASecondAndIn150MB) {
  const TempFolder folder;
  for (int shard = 0; shard < 100; ++shard)
    write_hollow(folder.path(fmt::format("train-{:03}.tar", shard)), 10'000);
  const std::uint64_t before = resident_bytes();
  const std::clock_t begin = std::clock();
  const auto reader = open(folder.path(), IndexUse::require);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_EQ(reader->info().count, 1'000'000u);
  EXPECT_LT(seconds, 1) << "CPU seconds";
  EXPECT_LT(resident_bytes() - before, 150u << 20);
  RecordProperty("cpu_seconds", std::to_string(seconds));
  RecordProperty("resident_bytes", std::to_string(resident_bytes() - before));
  Buffer scratch;
  EXPECT_EQ(reader->read(999'999, scratch).label, 999);
}

}  // namespace
}  // namespace millrace::pipeline
