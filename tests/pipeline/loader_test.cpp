// Tests the loader's contracts: determinism (same batches whatever the workers), zero copy (slots),
// bounded memory (no allocation per sample), contained failures and prompt stop; and that n workers
// are n threads.
#include "millrace/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "augment/plan/plan.h"
#include "millrace/error.h"
#include "plugins/host/registry.h"
#include "tests/pipeline/allocations.h"
#include "tests/pipeline/numbered.h"

namespace millrace::pipeline {
namespace {

std::shared_ptr<const augment::Plan> plan_of(const Reader& reader, bool augmented = false) {
  std::vector<OpSpec> chain;
  if (augmented) {
    for (const auto& declared : op_declarations()) {
      if (declared.name != "hflip" && !declared.name.starts_with("random_affine") &&
          declared.name != "random_crop")
        continue;
      OpSpec spec{declared.name, declared.name, true, Params(declared.params)};
      if (declared.name == "random_affine") spec.params.set("degrees", std::vector<double>{20});
      if (declared.name == "random_crop") {
        spec.params.set("size", std::vector<double>{5, 6});
        spec.params.set("padding", std::vector<double>{1});
      }
      chain.push_back(spec);
    }
  }
  return std::make_shared<augment::Plan>(chain, Source{reader.info().size, 1},
                                         OutputOptions{DType::u8, Layout::chw, {0}, {1}},
                                         Resample::once);
}

struct Taken {
  std::vector<std::uint8_t> bytes;
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> counts;
  bool operator==(const Taken&) const = default;
};

Taken take_all(const std::shared_ptr<const Reader>& reader, LoaderOptions options,
               bool augmented = false) {
  Loader loader(reader, plan_of(*reader, augmented), options);
  Taken taken;
  while (Batch batch = loader.next()) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(batch.data());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % 64, 0u);
    taken.bytes.insert(taken.bytes.end(), bytes, bytes + batch.bytes());
    taken.labels.insert(taken.labels.end(), batch.labels(), batch.labels() + batch.count());
    taken.counts.push_back(batch.count());
  }
  return taken;
}

LoaderOptions options_of(int workers, std::int64_t batch = 8) {
  LoaderOptions options;
  options.workers = workers;
  options.batch = batch;
  options.seed = 3;
  return options;
}

TEST(Loader, BatchesDependOnTheRecipeAlone) {
  const auto reader = std::make_shared<Numbered>(203);
  LoaderOptions options = options_of(0);
  options.epochs = 3;
  const Taken expected = take_all(reader, options, true);
  EXPECT_EQ(expected.labels.size(), 3 * 203u);
  EXPECT_EQ(expected.counts.back(), 203 % 8);
  for (const int workers : {0, 1, 2, 4}) {
    for (const int prefetch : {1, 2, 8}) {
      for (const int grain : {0, 1, 3}) {
        options.workers = workers;
        options.prefetch = prefetch;
        options.grain = grain;
        ASSERT_EQ(take_all(reader, options, true), expected)
            << workers << " " << prefetch << " " << grain;
      }
    }
  }
  options.seed = 4;
  EXPECT_NE(take_all(reader, options, true).bytes, expected.bytes);
}

TEST(Loader, ARestartOnOtherWorkersGoesOnWithTheNextBatch) {
  const auto reader = std::make_shared<Numbered>(203);
  LoaderOptions options = options_of(0);
  options.epochs = 3;
  const Taken expected = take_all(reader, options, true);
  options.workers = 2;
  Loader loader(reader, plan_of(*reader, true), options);
  Taken taken;
  Batch held;  // kept across a restart
  std::vector<std::uint8_t> held_bytes;
  const int workers[] = {1, 4, 0, 3};
  for (std::size_t i = 0; Batch batch = loader.next(); ++i) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(batch.data());
    taken.bytes.insert(taken.bytes.end(), bytes, bytes + batch.bytes());
    taken.labels.insert(taken.labels.end(), batch.labels(), batch.labels() + batch.count());
    taken.counts.push_back(batch.count());
    if (i == 30) {
      held_bytes.assign(bytes, bytes + batch.bytes());
      held = std::move(batch);
    }
    if (i % 20 == 10) {
      loader.restart(workers[i / 20], nullptr);
      EXPECT_EQ(loader.workers(), workers[i / 20]);
    }
  }
  EXPECT_EQ(taken, expected);
  EXPECT_EQ(std::memcmp(held.data(), held_bytes.data(), held_bytes.size()), 0);
  EXPECT_GE(loader.stats().augment.calls, expected.labels.size()) << "of all its workers";
  loader.restart(2, nullptr);
  EXPECT_FALSE(loader.next()) << "after the end there is nothing to go on with";
}

TEST(Loader, AnInterruptOutlastsARestart) {
  const auto reader = std::make_shared<Numbered>(203);
  Loader loader(reader, plan_of(*reader), options_of(2));
  EXPECT_TRUE(loader.next());
  loader.interrupt();
  loader.restart(1, nullptr);
  EXPECT_FALSE(loader.next());
}

TEST(Loader, EveryEpochHoldsEverySampleOnceInItsOwnOrder) {
  const auto reader = std::make_shared<Numbered>(100);
  LoaderOptions options = options_of(2);
  options.epochs = 2;
  const Taken taken = take_all(reader, options);
  std::vector<std::uint8_t> first, second;
  for (std::size_t i = 0; i < 200; ++i)
    (i < 100 ? first : second).push_back(taken.bytes[i * Numbered::kBytes]);
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(first[i], i);
}

TEST(Loader, StartsInTheMiddle) {
  const auto reader = std::make_shared<Numbered>(203);
  LoaderOptions options = options_of(2);
  options.epochs = 2;
  const Taken whole = take_all(reader, options, true);
  options.first_batch = 30;  // 26 batches per epoch: the fifth of the second epoch
  const Taken rest = take_all(reader, options, true);
  ASSERT_EQ(rest.counts.size(), whole.counts.size() - 30);
  EXPECT_TRUE(std::equal(rest.bytes.rbegin(), rest.bytes.rend(), whole.bytes.rbegin()));
}

TEST(Loader, DropLastLeavesOutTheShortBatch) {
  const auto reader = std::make_shared<Numbered>(20);
  LoaderOptions options = options_of(1);
  options.drop_last = true;
  EXPECT_EQ(take_all(reader, options).counts, (std::vector<std::int64_t>{8, 8}));
}

/// Makes every read wait until `threads` reads wait at once, and records the threads.
class ThreadBarrier final : public Numbered {
 public:
  ThreadBarrier(std::uint64_t count, int threads) : Numbered(count), wanted_(threads) {}
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    std::unique_lock lock(mutex_);
    seen_.insert(std::this_thread::get_id());
    at_once_ = std::max(at_once_, ++waiting_);
    if (waiting_ >= wanted_) met_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return met_; });
    --waiting_;
    return Numbered::read(index, scratch);
  }
  bool met() const { return met_; }
  std::size_t threads() const { return seen_.size(); }
  int at_once() const { return at_once_; }
  bool saw(std::thread::id id) const { return seen_.count(id) > 0; }

 private:
  int wanted_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int waiting_ = 0;
  mutable int at_once_ = 0;
  mutable bool met_ = false;
  mutable std::set<std::thread::id> seen_;
};

TEST(Loader, NWorkersAreNThreadsAtOnce) {
  for (int workers = 1; workers <= 4; ++workers) {
    const auto reader = std::make_shared<ThreadBarrier>(64, workers);
    LoaderOptions options = options_of(workers, 4);
    options.grain = 1;
    take_all(reader, options);
    EXPECT_TRUE(reader->met()) << workers << " workers were never at work at once";
    EXPECT_EQ(reader->at_once(), workers);
    // oneTBB may put another thread in the place of one that had nothing to do for a while.
    EXPECT_GE(reader->threads(), static_cast<std::size_t>(workers));
    EXPECT_FALSE(reader->saw(std::this_thread::get_id()));
  }
}

TEST(Loader, NoWorkersMeansTheCallersThread) {
  const auto reader = std::make_shared<ThreadBarrier>(16, 1);
  take_all(reader, options_of(0));
  EXPECT_TRUE(reader->saw(std::this_thread::get_id()));
  EXPECT_EQ(reader->threads(), 1u);
}

TEST(Loader, HoldingEverySlotIsAnError) {
  const auto reader = std::make_shared<Numbered>(100);
  for (const int workers : {0, 1}) {
    LoaderOptions options = options_of(workers);
    options.prefetch = 2;
    Loader loader(reader, plan_of(*reader), options);
    std::vector<Batch> held;
    for (int i = 0; i < (workers == 0 ? 2 : 3); ++i) held.push_back(loader.next());
    EXPECT_THROW(loader.next(), RunError);
    held.erase(held.begin());
    EXPECT_TRUE(loader.next());
  }
}

TEST(Loader, AnOldBatchThatIsKeptIsAnErrorOnceItsSlotIsNeeded) {
  const auto reader = std::make_shared<Numbered>(200);
  for (const int workers : {0, 1}) {
    LoaderOptions options = options_of(workers);
    options.prefetch = 2;
    Loader loader(reader, plan_of(*reader), options);
    const Batch kept = loader.next();
    const int slots = workers == 0 ? 2 : 3;
    for (int i = 1; i < slots; ++i) EXPECT_TRUE(loader.next());
    EXPECT_THROW(loader.next(), RunError);
  }
}

TEST(Loader, TwoLoadersHaveTheirWorkersEach) {
  const auto idle = std::make_shared<Numbered>(64);
  Loader other(idle, plan_of(*idle), options_of(1));
  ASSERT_TRUE(other.next());
  const auto reader = std::make_shared<ThreadBarrier>(64, 4);
  LoaderOptions options = options_of(4, 4);
  options.grain = 1;
  take_all(reader, options);
  EXPECT_TRUE(reader->met());
  EXPECT_EQ(reader->at_once(), 4);  // over time TBB may replace one of them by the idle loader's
}

TEST(Loader, BatchesMayComeBackInAnyOrderAndFromOtherThreads) {
  const auto reader = std::make_shared<Numbered>(200);
  LoaderOptions options = options_of(2);
  options.prefetch = 3;
  Loader loader(reader, plan_of(*reader), options);
  std::vector<Batch> held;
  std::uint64_t count = 0;
  while (Batch batch = loader.next()) {
    ++count;
    held.push_back(std::move(batch));
    if (held.size() == 3) {
      std::thread([one = std::move(held[1])]() mutable { one.release(); }).join();
      held.erase(held.begin() + 1);
      held.erase(held.begin());
    }
  }
  EXPECT_EQ(count, 25u);
}

TEST(Loader, ABatchOutlivesItsLoader) {
  const auto reader = std::make_shared<Numbered>(100);
  Batch batch;
  {
    Loader loader(reader, plan_of(*reader), options_of(2));
    batch = loader.next();
  }
  EXPECT_EQ(batch.count(), 8);
  EXPECT_EQ(batch.labels()[0], static_cast<std::int64_t>(static_cast<int>(batch.data()[0]) % 10));
}

TEST(Loader, LeavingInTheMiddleEndsTheWorkers) {
  const auto reader = std::make_shared<Numbered>(10000);
  for (int round = 0; round < 30; ++round) {
    LoaderOptions options = options_of(round % 3, 16);
    options.io_threads = round % 4;
    Loader loader(reader, plan_of(*reader, true), options);
    for (int i = 0; i < round % 7; ++i) ASSERT_TRUE(loader.next());
  }
}

/// Blocks the first read of the second batch until it is released. Blocks one read only: ranges
/// start in no fixed order, so two of them could hold both workers before the first batch is made.
class Stuck final : public Numbered {
 public:
  explicit Stuck(std::uint64_t count) : Numbered(count) {}
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    if (index == 8)
      while (!free_.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Numbered::read(index, scratch);
  }
  void let_go() const { free_.store(true); }

 private:
  mutable std::atomic<bool> free_{false};
};

class BlockedRead : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Loader, BlockedRead, testing::Values(0, 3),
                         testing::PrintToStringParamName());

TEST_P(BlockedRead, IsLeftBehind) {
  const auto reader = std::make_shared<Stuck>(64);
  const auto begin = std::chrono::steady_clock::now();
  {
    LoaderOptions options = options_of(2);
    options.io_threads = GetParam();
    options.shuffle = {Shuffle::Kind::none, 0};
    Loader loader(reader, plan_of(*reader), options);
    EXPECT_TRUE(loader.next());
    std::thread waker([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      loader.interrupt();
    });
    EXPECT_FALSE(loader.next()) << "interrupt() wakes a next() that waits";
    waker.join();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  reader->let_go();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

/// Claims to be encoded, with some samples whose bytes are no image.
class Damaged final : public Numbered {
 public:
  explicit Damaged(std::uint64_t count) : Numbered(count) { info_.encoded = true; }
  Sample read(std::uint64_t index, Buffer&) const override {
    if (index % 10 == 3) throw DataError("cannot be read");
    return {std::span(kGray, sizeof kGray - 1), static_cast<std::int64_t>(index)};
  }
  // The smallest possible BMP: 1x1, 24 bits; read by the imgcodecs plugin.
  static constexpr unsigned char kGray[] =
      "BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x18\0\0\0\0\0\4\0\0\0\0\0\0\0\0"
      "\0\0\0\0\0\0\0"
      "\0\0\0\0\x80\x80\x80\0";
};

Taken take_damaged(OnError on_error, int workers, std::vector<std::uint64_t>* failures = nullptr) {
  const auto reader = std::make_shared<Damaged>(40);
  LoaderOptions options = options_of(workers);
  options.on_error = on_error;
  options.quarantine = [&](const Failure& failure) {
    if (failures != nullptr) failures->push_back(failure.sample);
  };
  const auto plan = std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{{1, 1}, 3},
                                                    OutputOptions{DType::u8, Layout::chw, {0}, {1}},
                                                    Resample::once);
  Loader loader(reader, plan, options);
  Taken taken;
  while (Batch batch = loader.next()) {
    taken.labels.insert(taken.labels.end(), batch.labels(), batch.labels() + batch.count());
    taken.counts.push_back(batch.count());
  }
  return taken;
}

TEST(Loader, SkipShortensTheBatchAndMovesNoOther) {
  std::vector<std::uint64_t> failures;
  const Taken skipped = take_damaged(OnError::skip, 0, &failures);
  EXPECT_EQ(failures.size(), 4u);
  EXPECT_EQ(skipped.counts.size(), 5u);
  EXPECT_EQ(skipped.labels.size(), 36u);
  for (const std::int64_t label : skipped.labels) EXPECT_NE(label % 10, 3);
  EXPECT_EQ(take_damaged(OnError::skip, 3), skipped);
}

TEST(Loader, ReplaceFillsThePlaceByAKeyedDraw) {
  const Taken replaced = take_damaged(OnError::replace, 0);
  EXPECT_EQ(replaced.labels.size(), 40u);
  for (const std::int64_t label : replaced.labels) EXPECT_NE(label % 10, 3);
  EXPECT_EQ(take_damaged(OnError::replace, 3), replaced);
}

/// Asks its loader to stop while it reads its first sample, which it cannot.
class StoppedReader final : public Numbered {
 public:
  StoppedReader() : Numbered(40) { info_.encoded = true; }
  Sample read(std::uint64_t, Buffer&) const override {
    ++reads;
    stop = true;
    throw DataError("cannot be read");
  }
  mutable std::atomic<int> reads{0};
  mutable std::atomic<bool> stop{false};
};

TEST(Loader, ARequestToStopEndsABatchAtItsNextSample) {
  for (const int workers : {0, 1}) {
    const auto reader = std::make_shared<StoppedReader>();
    LoaderOptions options = options_of(workers);
    options.batch = 40;
    options.on_error = OnError::replace;
    options.stop = &reader->stop;
    Loader loader(reader, plan_of(*reader), options);
    EXPECT_FALSE(loader.next());
    EXPECT_EQ(reader->reads, 1) << "with " << workers << " workers";
  }
}

TEST(Loader, FailNamesTheFirstSampleOfTheOrder) {
  std::string messages[2];
  for (const int workers : {0, 3}) {
    try {
      take_damaged(OnError::fail, workers);
      FAIL() << "no error";
    } catch (const DataError& error) {
      messages[workers > 0] = error.what();
    }
  }
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_NE(messages[0].find("cannot be read"), std::string::npos);
  EXPECT_NE(messages[0].find("image "), std::string::npos);
}

/// Copies the image, but rejects one sample in ten.
class Picky final : public Transform {
 public:
  explicit Picky(Size size) : spec_{size, 1, DType::u8, Layout::chw} {}
  std::unique_ptr<Scratch> make_scratch() const override { return std::make_unique<Scratch>(); }
  const SampleSpec& output() const override { return spec_; }
  void run(const SampleKey& key, PixelSource& source, std::byte* out, Scratch&) const override {
    if (key.sample % 10 == 3) throw DataError("picky: not this one");
    std::memcpy(out, source.pixels({}, 0).data, spec_.bytes());
  }

 private:
  SampleSpec spec_;
};

/// Pixels that need no scratch, which workers take by whole ranges.
class InPlace final : public Numbered {
 public:
  explicit InPlace(std::uint64_t count) : Numbered(count) { info_.in_place = true; }
};

TEST(Loader, AnOpThatFailsIsHandledWhereverThePixelsLie) {
  for (const OnError on_error : {OnError::skip, OnError::replace, OnError::fail}) {
    std::set<std::string> found;
    for (const int workers : {0, 1, 3})
      for (const bool in_place : {false, true}) {
        std::shared_ptr<const Reader> reader = std::make_shared<Numbered>(40);
        if (in_place) reader = std::make_shared<InPlace>(40);
        std::string all;
        LoaderOptions options = options_of(workers);
        options.on_error = on_error;
        options.quarantine = [&](const Failure& failure) {
          all +=
              std::to_string(failure.position) + " " + failure.name + " " + failure.reason + "\n";
        };
        Loader loader(reader, std::make_shared<Picky>(reader->info().size), options);
        try {
          while (const Batch batch = loader.next())
            all.append(reinterpret_cast<const char*>(batch.data()), batch.bytes());
        } catch (const DataError& error) {
          all += error.what();
        }
        found.insert(all);
      }
    EXPECT_EQ(found.size(), 1u);
    EXPECT_NE(found.begin()->find("picky: not this one"), std::string::npos);
    if (on_error != OnError::fail) {
      EXPECT_GE(found.begin()->size(), 36 * Numbered::kBytes);
    }
  }
}

TEST(Loader, WhateverAWorkerThrowsComesOutOfNext) {
  for (const int workers : {0, 2}) {
    const auto reader = std::make_shared<Damaged>(40);
    LoaderOptions options = options_of(workers);
    options.on_error = OnError::skip;
    options.quarantine = [](const Failure&) { throw std::bad_alloc(); };
    const auto plan = std::make_shared<augment::Plan>(
        std::vector<OpSpec>{}, Source{{1, 1}, 3}, OutputOptions{DType::u8, Layout::chw, {0}, {1}},
        Resample::once);
    Loader loader(reader, plan, options);
    EXPECT_THROW(
        {
          while (loader.next()) {
          }
        },
        std::bad_alloc)
        << workers << " workers";
  }
}

TEST(Loader, AtTheEndThereIsNoBatchAndBehindItIsRefused) {
  const auto reader = std::make_shared<Numbered>(100);
  for (const int workers : {0, 1}) {
    LoaderOptions options = options_of(workers);
    options.first_batch = 13;  // of 13 batches: the position after a finished run
    EXPECT_FALSE(Loader(reader, plan_of(*reader), options).next());
    options.first_batch = 14;
    EXPECT_THROW(Loader(reader, plan_of(*reader), options), UsageError);
  }
}

TEST(Loader, ABatchLargerThanTheSetIsRefused) {
  const auto reader = std::make_shared<Numbered>(10);
  EXPECT_THROW(Loader(reader, plan_of(*reader), options_of(0, 11)), UsageError);
}

TEST(Loader, NoAllocationASample) {
  if (!counts_allocations()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto reader = std::make_shared<Numbered>(64 * 200);
  for (const int workers : {0, 2}) {
    LoaderOptions options = options_of(workers, 64);
    options.epochs = 3;
    Loader loader(reader, plan_of(*reader, true), options);
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(loader.next());  // the first epoch warms up
    const std::uint64_t before = allocations();
    for (int i = 0; i < 400; ++i) ASSERT_TRUE(loader.next());
    const std::uint64_t since = allocations() - before;
    // TBB may allocate a block for messages now and then; a sample allocates nothing.
    EXPECT_LT(since, 400u) << workers << " workers, 25,600 samples";
  }
}

TEST(Loader, StagesAreCounted) {
  const auto reader = std::make_shared<Numbered>(1000);
  for (const int workers : {0, 2}) {
    Loader loader(reader, plan_of(*reader), options_of(workers, 100));
    while (loader.next()) {
    }
    const LoaderStats stats = loader.stats();
    EXPECT_EQ(stats.read.calls, 1000u);
    EXPECT_EQ(stats.augment.calls, 1000u);
    EXPECT_EQ(stats.augment.bytes, 1000 * Numbered::kBytes);
    EXPECT_GT(stats.augment.wall_s, 0);
  }
}

}  // namespace
}  // namespace millrace::pipeline
