// Tests the emulated disk by the clock: rates to 3%. A busy machine can only slow a thread down, so
// the closest of a few tries counts.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "augment/plan/plan.h"
#include "base/clock.h"
#include "millrace/loader.h"
#include "pipeline/readers/storage.h"
#include "tests/attempts.h"

namespace millrace::pipeline {
namespace {

constexpr double kTolerance = 0.03;

/// Returns the requests per second that `threads` get, each asking again as soon as it is served.
double rate(const StorageOptions& options, int threads, std::uint64_t bytes, int requests) {
  StorageModel disk(options);
  const std::atomic<bool> stop{false};
  const std::int64_t begin = base::Clock::steady_ns();
  {
    std::vector<std::jthread> all;
    for (int t = 0; t < threads; ++t)
      all.emplace_back([&] {
        StorageModel::Lane lane;
        for (int i = 0; i < requests / threads; ++i)
          disk.serve(base::Clock::steady_ns(), bytes, lane, stop);
      });
  }
  return static_cast<double>(requests) /
         (static_cast<double>(base::Clock::steady_ns() - begin) * 1e-9);
}

TEST(StorageTiming, BandwidthIsShared) {
  for (const int threads : {1, 4}) {
    // 100 MB/s in pieces of 100 kB, and in pieces too short to sleep for.
    EXPECT_TRUE(test::close_to(1000, kTolerance, [&] {
      return rate({100e6, 0, 0}, threads, 100'000, 400);
    }));
    EXPECT_TRUE(test::close_to(50'000, kTolerance, [&] {
      return rate({100e6, 0, 0}, threads, 2'000, 20'000);
    }));
  }
}

TEST(StorageTiming, LatencyOverlaps) {
  for (const int threads : {1, 4, 8})
    EXPECT_TRUE(test::close_to(250.0 * threads, kTolerance, [&] {
      return rate({0, 0.004, 0}, threads, 1, 100 * threads);
    }));
}

TEST(StorageTiming, RequestsAreCounted) {
  for (const int threads : {1, 4})
    EXPECT_TRUE(test::close_to(2000, kTolerance, [&] {
      return rate({0, 0, 2000}, threads, 1, 800);
    }));
  // The bus decides if all three limit.
  EXPECT_TRUE(test::close_to(500, kTolerance, [] {
    return rate({10e6, 0.001, 5000}, 4, 20'000, 200);
  }));
}

TEST(StorageTiming, WaitingIsSleeping) {
  const std::int64_t begin = base::Clock::process_cpu_ns();
  rate({1e6, 0, 0}, 4, 1'000, 400);  // 0.4 s
  EXPECT_LT(static_cast<double>(base::Clock::process_cpu_ns() - begin) * 1e-9, 0.1);
}

/// Returns the images per second of a loader whose storage is the bottleneck.
double loaded(const StorageOptions& storage, int workers, int io_threads) {
  DataOptions data;
  data.reader = "synthetic";
  data.synthetic = {2000, {32, 32}, 3, 10};
  const std::shared_ptr<const Reader> reader = open_reader(data);
  const auto plan = std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{{32, 32}, 3},
                                                    OutputOptions{DType::u8, Layout::chw, {0}, {1}},
                                                    Resample::once);
  LoaderOptions options;
  options.workers = workers;
  options.io_threads = io_threads;
  options.storage = std::make_shared<StorageModel>(storage);
  const std::int64_t begin = base::Clock::steady_ns();
  Loader loader(reader, plan, options);
  while (loader.next()) {
  }
  return 2000 / (static_cast<double>(base::Clock::steady_ns() - begin) * 1e-9);
}

TEST(StorageTiming, ALoaderRunsAtTheDisksRate) {
  // 3072 bytes per image: 10 MB/s are 3255 images per second.
  for (const auto& [workers, io_threads] : {std::pair(0, 0), std::pair(2, 0), std::pair(2, 4)})
    EXPECT_TRUE(test::close_to(10e6 / 3072, kTolerance,
                               [&] {
                                 return loaded({10e6, 0, 0}, workers, io_threads);
                               }))
        << workers << " " << io_threads;
  for (const int io_threads : {4, 8})
    EXPECT_TRUE(test::close_to(io_threads * 500.0, kTolerance, [&] {
      return loaded({0, 0.002, 0}, 2, io_threads);
    })) << io_threads;
  EXPECT_TRUE(test::close_to(4000, kTolerance, [] { return loaded({0, 0, 4000}, 2, 4); }));
}

}  // namespace
}  // namespace millrace::pipeline
