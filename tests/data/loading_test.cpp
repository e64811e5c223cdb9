// Tests loading through every reader: equal batches and equal reports of failures, whatever threads
// read and decode them (determinism and contained-failures contracts), from any batch on, without
// an allocation per sample (bounded-memory contract).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "augment/plan/plan.h"
#include "base/atomic_file.h"
#include "base/open_file.h"
#include "millrace/loader.h"
#include "pipeline/loader/memory_budget.h"
#include "pipeline/readers/listing.h"
#include "pipeline/readers/storage.h"
#include "tests/attempts.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tests/pipeline/allocations.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

namespace fs = test::fs;
using test::Bytes;
using test::TarBuilder;
using test::TempFolder;

constexpr Size kSize{16, 16};
constexpr int kImages = 45;

Bytes jpeg(int i) {
  Bytes pixels(16 * 16 * 3);
  for (std::size_t at = 0; at < pixels.size(); ++at)
    pixels[at] = static_cast<std::uint8_t>(at * static_cast<std::size_t>(i + 1) / 3 + at % 7);
  return tools::encode_jpeg(pixels, kSize, 60 + i % 40);
}

/// Writes the same JPEGs as folder, archives and manifest; every index in `damaged` is cut in half.
void write_sets(const TempFolder& folder, const std::set<int>& damaged = {}, int images = kImages) {
  TarBuilder tars[3];
  std::string manifest = "path,label\n";
  for (int i = 0; i < images; ++i) {
    Bytes bytes = jpeg(i);
    if (damaged.contains(i)) bytes.resize(bytes.size() / 2);
    const std::string digits = std::to_string(10000 + i);
    const std::string label = std::to_string(i * 3 / images);
    folder.write("folder/train/c" + label + "/" + digits + ".jpg", bytes);
    tars[i * 3 / images].add(digits + ".jpg", bytes).add(digits + ".cls", label);
    manifest += "folder/train/c" + label + "/" + digits + ".jpg," + label + "\n";
  }
  for (int shard = 0; shard < 3; ++shard)
    folder.write("tar/" + std::to_string(shard) + ".tar", tars[shard].end());
  folder.write("manifest.csv", test::bytes_from(manifest));
  folder.write("idx/train-images-idx3-ubyte", test::idx_images(kImages, 16, 16));
  folder.write("idx/train-labels-idx1-ubyte", test::idx_labels(Bytes(kImages, 2)));
}

std::shared_ptr<const Reader> open_set(const TempFolder& folder, const std::string& name,
                                       Cache cache = Cache::os) {
  DataOptions options;
  options.reader = name;
  options.path = folder.path(name == "manifest" ? "manifest.csv" : name);
  options.cache = cache;
  options.synthetic = {kImages, kSize, 3, 3};
  return open_reader(options);
}

constexpr const char* kEncoded[] = {"folder", "tar", "manifest"};
constexpr const char* kAll[] = {"folder", "tar", "manifest", "idx", "synthetic"};

struct Taken {
  Bytes bytes;
  std::vector<std::int64_t> labels, counts;
  std::vector<std::string> failures;
  LoaderStats stats;
  bool operator==(const Taken& other) const {
    return bytes == other.bytes && labels == other.labels && counts == other.counts &&
           failures == other.failures;
  }
};

std::shared_ptr<const augment::Plan> plan_of(const Reader& reader) {
  const int channels = reader.info().encoded ? 3 : reader.info().channels;
  return std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{kSize, channels},
                                         OutputOptions{DType::u8, Layout::hwc, {0}, {1}},
                                         Resample::once);
}

Taken take_all(const std::shared_ptr<const Reader>& reader, LoaderOptions options,
               std::shared_ptr<const Transform> transform = nullptr) {
  if (transform == nullptr) transform = plan_of(*reader);
  Taken taken;
  options.quarantine = [&](const Failure& failure) {
    taken.failures.push_back(
        std::to_string(failure.epoch) + " " + std::to_string(failure.position) + " " +
        std::to_string(failure.sample) + " " + failure.name + " " + failure.reason);
  };
  Loader loader(reader, transform, options);
  while (Batch batch = loader.next()) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(batch.data());
    taken.bytes.insert(taken.bytes.end(), bytes, bytes + batch.bytes());
    taken.labels.insert(taken.labels.end(), batch.labels(), batch.labels() + batch.count());
    taken.counts.push_back(batch.count());
  }
  taken.stats = loader.stats();
  return taken;
}

LoaderOptions options_of(int workers, int io_threads = 0) {
  LoaderOptions options;
  options.workers = workers;
  options.io_threads = io_threads;
  options.batch = 8;
  options.seed = 5;
  options.epochs = 2;
  return options;
}

constexpr std::pair<int, int> kThreads[] = {{0, 0}, {0, 4}, {1, 0}, {1, 4}, {2, 0},
                                            {2, 1}, {2, 4}, {4, 0}, {4, 4}};

TEST(Loading, TheSameBatchesFromEveryReaderAndThread) {
  const TempFolder folder;
  write_sets(folder);
  const Taken images = take_all(open_set(folder, "folder"), options_of(0));
  EXPECT_EQ(images.labels.size(), 2u * kImages);
  EXPECT_EQ(images.counts.back(), kImages % 8);
  for (const char* name : kAll) {
    const auto reader = open_set(folder, name);
    const Taken expected = take_all(reader, options_of(0));
    EXPECT_EQ(expected == images, reader->info().encoded) << name;
    for (const auto& [workers, io_threads] : kThreads)
      for (const int grain : {0, 3}) {
        LoaderOptions options = options_of(workers, io_threads);
        options.grain = grain;
        options.prefetch = 2;
        const Taken taken = take_all(reader, options);
        ASSERT_EQ(taken, expected) << name << " " << workers << " " << io_threads;
        EXPECT_EQ(taken.stats.io_threads, workers > 0 ? io_threads : 0);
        EXPECT_EQ(taken.stats.read.calls, 2u * kImages);
        EXPECT_GT(taken.stats.read.bytes, 0u);
      }
  }
}

TEST(Loading, CachesAndEmulatedStorageChangeNoByte) {
  const TempFolder folder;
  write_sets(folder);
  for (const char* name : {"folder", "tar", "manifest", "idx"}) {
    const Taken expected = take_all(open_set(folder, name), options_of(0));
    for (const Cache cache : {Cache::os, Cache::ram, Cache::cold})
      for (const auto& [workers, io_threads] :
           {std::pair(0, 0), std::pair(2, 0), std::pair(2, 3)}) {
        LoaderOptions options = options_of(workers, io_threads);
        if (cache != Cache::cold)
          options.storage = std::make_shared<StorageModel>(StorageOptions{50e6, 0.0002, 0});
        const Taken taken = take_all(open_set(folder, name, cache), options);
        ASSERT_EQ(taken, expected) << name << " " << workers << " " << io_threads;
        EXPECT_EQ(taken.stats.cold.proven + taken.stats.cold.resident,
                  cache == Cache::cold ? 2u * kImages : 0u);
      }
  }
}

TEST(Loading, ResumesAtAnyBatch) {
  const TempFolder folder;
  write_sets(folder);
  for (const char* name : kAll) {
    const auto reader = open_set(folder, name);
    for (const Shuffle& shuffle :
         {Shuffle{Shuffle::Kind::none, 0}, Shuffle{Shuffle::Kind::global, 0},
          Shuffle{Shuffle::Kind::window, 7}}) {
      LoaderOptions options = options_of(2, name == kAll[0] ? 2 : 0);
      options.shuffle = shuffle;
      const Taken whole = take_all(reader, options);
      for (std::uint64_t first = 1; first < whole.counts.size(); ++first) {
        options.first_batch = first;
        const Taken rest = take_all(reader, options);
        ASSERT_EQ(rest.counts.size(), whole.counts.size() - first);
        ASSERT_TRUE(std::equal(rest.bytes.rbegin(), rest.bytes.rend(), whole.bytes.rbegin()))
            << name << " from " << first;
        ASSERT_TRUE(std::equal(rest.labels.rbegin(), rest.labels.rend(), whole.labels.rbegin()));
      }
    }
  }
}

TEST(Loading, FailuresAreHandledAndReportedAlike) {
  const TempFolder folder;
  write_sets(folder, {3, 4, 17, 44});
  for (const char* name : kEncoded)
    for (const OnError on_error : {OnError::skip, OnError::replace}) {
      const auto reader = open_set(folder, name);
      // Removes a file after it was listed, as a failing disk would. An archive has no such case.
      const std::string gone = folder.path("folder/train/c1/10020.jpg");
      const bool vanishes = name != std::string("tar");
      if (vanishes) fs::remove(gone);
      LoaderOptions options = options_of(0);
      options.on_error = on_error;
      const Taken expected = take_all(reader, options);
      EXPECT_GE(expected.failures.size(), vanishes ? 10u : 8u);
      EXPECT_EQ(expected.stats.failed, expected.failures.size());
      EXPECT_EQ(expected.labels.size(),
                on_error == OnError::skip ? 2u * (kImages - 4 - vanishes) : 2u * kImages);
      for (const auto& [workers, io_threads] : kThreads) {
        options.workers = workers;
        options.io_threads = io_threads;
        options.grain = 1 + workers;
        const Taken taken = take_all(reader, options);
        EXPECT_EQ(taken.failures, expected.failures) << name << " " << workers << " " << io_threads;
        ASSERT_EQ(taken, expected) << name << " " << workers << " " << io_threads;
      }
      folder.write("folder/train/c1/10020.jpg", jpeg(20));
    }
}

TEST(Loading, FailNamesTheFirstOfTheOrder) {
  const TempFolder folder;
  write_sets(folder, {3, 4, 17, 44});
  for (const char* name : kEncoded) {
    std::set<std::string> messages;
    for (const auto& [workers, io_threads] : kThreads) {
      LoaderOptions options = options_of(workers, io_threads);
      options.grain = 1;
      try {
        take_all(open_set(folder, name), options);
        ADD_FAILURE() << "no error";
      } catch (const DataError& error) {
        messages.insert(error.what());
      }
    }
    EXPECT_EQ(messages.size(), 1u) << name;
    EXPECT_NE(messages.begin()->find(".jpg"), std::string::npos) << *messages.begin();
  }
}

TEST(Loading, AnImageThatDoesNotFitIsItsSamplesFault) {
  const TempFolder folder;
  write_sets(folder);
  folder.write("folder/train/c2/wide.bmp", test::bmp(70'000, 1));
  folder.write("folder/train/c2/other.bmp", test::bmp(17, 16));
  const auto reader = open_set(folder, "folder");
  for (const OnError on_error : {OnError::skip, OnError::replace}) {
    LoaderOptions options = options_of(0);
    options.on_error = on_error;
    const Taken expected = take_all(reader, options);
    EXPECT_GE(expected.failures.size(), 4u);
    for (const char* reason : {"wide.bmp bmp: 70000x1: sides of more than 65535 pixels",
                               "other.bmp an image of 17x16 leads to a sample of 17x16"})
      EXPECT_TRUE(std::any_of(
          expected.failures.begin(), expected.failures.end(),
          [&](const std::string& one) { return one.find(reason) != std::string::npos; }))
          << reason;
    for (const auto& [workers, io_threads] : {std::pair(1, 0), std::pair(4, 0), std::pair(2, 4)}) {
      options.workers = workers;
      options.io_threads = io_threads;
      ASSERT_EQ(take_all(reader, options), expected) << workers << " " << io_threads;
    }
  }
  fs::remove(folder.path("folder/train/c2/other.bmp"));
  test::expect_data_error({"c2/wide.bmp", "65535"},
                          [&] { take_all(open_set(folder, "folder"), options_of(2)); });
}

/// A plan whose every sample counts as a large one. It records how many are processed at once.
class Large final : public Transform {
 public:
  static constexpr int kCopies = 30'000;
  static constexpr std::uint64_t kBytes = working_bytes(16 * 16, 3, kCopies);
  static_assert(kBytes > MemoryBudget::kSmall);

  explicit Large(std::shared_ptr<const augment::Plan> plan) : plan_(std::move(plan)) {}
  std::unique_ptr<Scratch> make_scratch() const override { return plan_->make_scratch(); }
  const SampleSpec& output() const override { return plan_->output(); }
  int full_copies() const override { return kCopies; }
  void run(const SampleKey& key, PixelSource& source, std::byte* out,
           Scratch& scratch) const override {
    const int now = inside_.fetch_add(1) + 1;
    for (int most = max_.load(); most < now && !max_.compare_exchange_weak(most, now);)
      ;
    while (blocked.load()) std::this_thread::yield();
    plan_->run(key, source, out, scratch);
    inside_.fetch_sub(1);
  }
  int most() const { return max_.load(); }
  int inside() const { return inside_.load(); }
  mutable std::atomic<bool> blocked{false};

 private:
  std::shared_ptr<const augment::Plan> plan_;
  mutable std::atomic<int> inside_{0}, max_{0};
};

TEST(Loading, ABudgetDelaysAndChangesNothing) {
  const TempFolder folder;
  write_sets(folder, {3, 17, 44});
  const auto reader = open_set(folder, "folder");
  LoaderOptions options = options_of(0);
  options.epochs = 1;
  options.on_error = OnError::skip;
  const Taken expected = take_all(reader, options);
  options.max_pixels = 1000;
  for (const auto& [workers, io_threads] :
       {std::pair(0, 0), std::pair(1, 2), std::pair(2, 0), std::pair(4, 3), std::pair(7, 1)})
    for (const int prefetch : {1, 4})
      for (const int room : {1, 2, 0}) {
        options.workers = workers;
        options.io_threads = io_threads;
        options.prefetch = prefetch;
        options.grain = 1 + prefetch % 3;
        options.max_bytes = room > 0 ? static_cast<std::uint64_t>(room) * Large::kBytes : 10'000;
        const auto transform = std::make_shared<Large>(plan_of(*reader));
        Taken taken = take_all(reader, options, transform);
        EXPECT_LE(transform->most(), std::max(1, room)) << workers << " workers";
        ASSERT_EQ(taken, expected) << workers << " " << io_threads << " " << prefetch;
      }
}

TEST(Loading, AWorkerThatWaitsForMemoryIsLetGo) {
  const TempFolder folder;
  write_sets(folder);
  const auto reader = open_set(folder, "folder");
  LoaderOptions options = options_of(3);
  options.max_pixels = 1000;
  options.max_bytes = Large::kBytes;
  options.grain = 1;
  auto transform = std::make_shared<Large>(plan_of(*reader));
  const std::weak_ptr<Large> left = transform;
  transform->blocked.store(true);
  {
    Loader loader(reader, transform, options);
    while (transform->inside() < 1) std::this_thread::yield();
    loader.interrupt();
    transform->blocked.store(false);
    EXPECT_FALSE(loader.next());
  }
  transform.reset();
  EXPECT_TRUE(left.expired()) << "a worker was left behind";
}

TEST(Loading, ABudgetForLessThanOneImageIsRefused) {
  const TempFolder folder;
  write_sets(folder);
  LoaderOptions options = options_of(1);
  options.max_pixels = 1'000'000;
  options.max_bytes = 9'999'999;
  test::expect_error(Exit::usage,
                     {"loader.max_bytes=9999999", "data.max_pixels=1000000", "10000000 bytes"},
                     [&] { take_all(open_set(folder, "folder"), options); });
  take_all(open_set(folder, "idx"), options);  // decodes nothing
  options.max_bytes = 10'000'000;
  take_all(open_set(folder, "folder"), options);
}

TEST(Loading, ShardsOfAnySizeGiveEverySampleOnce) {
  for (const int images : {3, 4, 9, 31}) {
    const TempFolder folder;
    write_sets(folder, {}, images);
    fs::copy_file(folder.path("tar/1.tar"), folder.path("tar/9.tar"));
    LoaderOptions options = options_of(4, 4);
    options.batch = std::min(images, 8);
    options.epochs = 1;
    const auto reader = open_set(folder, "tar");
    const Taken taken = take_all(reader, options);
    const auto count = static_cast<std::int64_t>(reader->info().count);
    EXPECT_EQ(std::ssize(taken.labels), count);
    EXPECT_EQ(taken.counts.back(), (count - 1) % options.batch + 1);
    std::vector<std::int64_t> expected;
    Buffer scratch;
    for (std::uint64_t i = 0; i < reader->info().count; ++i)
      expected.push_back(reader->read(i, scratch).label);
    auto labels = taken.labels;
    std::sort(labels.begin(), labels.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(labels, expected);
  }
}

TEST(Loading, NoAllocationASample) {
  if (!counts_allocations()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const TempFolder folder;
  write_sets(folder, {}, 400);
  for (const char* name : kEncoded)
    for (const Cache cache : {Cache::os, Cache::ram, Cache::cold})
      for (const auto& [workers, io_threads] :
           {std::pair(0, 0), std::pair(2, 0), std::pair(2, 3)}) {
        const auto reader = open_set(folder, name, cache);
        LoaderOptions options = options_of(workers, io_threads);
        options.batch = 40;
        options.epochs = 12;
        Loader loader(reader, plan_of(*reader), options);
        for (int i = 0; i < 50; ++i) ASSERT_TRUE(loader.next());
        const std::uint64_t before = allocations();
        for (int i = 0; i < 60; ++i) ASSERT_TRUE(loader.next());
        // TBB allocates a block for a batch now and then; a sample allocates nothing.
        EXPECT_LT(allocations() - before, 120u) << name << ", " << workers << " workers, "
                                                << io_threads << " I/O threads, 2400 samples";
      }
}

TEST(Loading, WaitingForStorageIsNoCpuTime) {
  const TempFolder folder;
  write_sets(folder);
  for (const auto& [workers, io_threads] : {std::pair(0, 0), std::pair(1, 0), std::pair(1, 2)}) {
    LoaderOptions options = options_of(workers, io_threads);
    test::in_attempts([&, workers = workers, io_threads = io_threads] {
      options.storage = std::make_shared<StorageModel>(StorageOptions{0, 0.004, 0});
      const LoaderStats stats = take_all(open_set(folder, "folder"), options).stats;
      EXPECT_GT(stats.read.wall_s, 0.3) << workers << " " << io_threads;
      EXPECT_LT(stats.read.cpu_s, 0.1) << workers << " " << io_threads;
      EXPECT_LT(stats.decode.wall_s, 0.2);
    });
  }
}

TEST(Loading, LeavesASlowDiskAtOnce) {
  const TempFolder folder;
  write_sets(folder);
  for (const auto& [workers, io_threads] : {std::pair(2, 0), std::pair(2, 3)}) {
    const auto begin = std::chrono::steady_clock::now();
    {
      LoaderOptions options = options_of(workers, io_threads);
      options.storage = std::make_shared<StorageModel>(StorageOptions{0, 3600, 0});
      Loader loader(open_set(folder, "folder"), plan_of(*open_set(folder, "folder")), options);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1)) << "of an hour";
  }
}

TEST(Loading, AnArchiveThatIsCutShortMeanwhile) {
  const TempFolder folder;
  write_sets(folder, {}, 400);
  std::vector<Taken> all;
  for (const auto& [workers, io_threads] : {std::pair(2, 0), std::pair(2, 3), std::pair(0, 0)}) {
    const auto reader = open_set(folder, "tar");
    const Bytes whole = test::read_bytes(folder.path("tar/1.tar"));
    fs::resize_file(folder.path("tar/1.tar"), 20'000);
    LoaderOptions options = options_of(workers, io_threads);
    options.on_error = OnError::skip;
    all.push_back(take_all(reader, options));
    EXPECT_GT(all.back().failures.size(), 200u);
    EXPECT_NE(all.back().failures[0].find("changed while the set is in use"), std::string::npos)
        << all.back().failures[0];
    EXPECT_EQ(all.back(), all.front());
    folder.write("tar/1.tar", whole);
  }
}

/// Writes archives of `each` samples with indexes, which name samples in a hole.
void write_indexed(const TempFolder& folder, int shards, int each) {
  for (int shard = 0; shard < shards; ++shard) {
    const std::string file = folder.write("train-" + std::to_string(shard) + ".tar", Bytes{0});
    fs::resize_file(file, static_cast<std::uintmax_t>(each) * 1024);
    ShardIndex index;
    index.shard = fs::path(file).filename();
    index.tar.folders = {""};
    for (int i = 0; i < each; ++i) {
      index.tar.samples.push_back(
          {static_cast<std::uint64_t>(i) * 1024 + 512, 512, 512, i % 10, 0});
      index.tar.name_at.push_back(static_cast<std::uint32_t>(index.tar.names.size()));
      index.tar.names += std::to_string(i) + ".jpg" + '\0';
    }
    const base::OpenFile open = base::open_regular(file);
    index.stamp = stamp_of(open.descriptor.get(), file);
    base::AtomicFile out(index_path(file));
    out.write(to_bytes(index));
    out.commit();
  }
}

TEST(Loading, OpensIndexedArchivesWithAllocationsPerArchiveOnly) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer counts for itself";
  std::uint64_t counts[2];
  for (const bool large : {false, true}) {
    const TempFolder folder;
    write_indexed(folder, 10, large ? 5000 : 50);
    DataOptions options;
    options.reader = "tar";
    options.path = folder.path();
    options.index = IndexUse::require;
    const std::uint64_t before = allocations();
    const auto reader = open_reader(options);
    counts[large] = allocations() - before;
    EXPECT_EQ(reader->info().count, large ? 50'000u : 500u);
  }
  EXPECT_LE(counts[1], counts[0] + 10) << "a hundred times the samples";
}

}  // namespace
}  // namespace millrace::pipeline
