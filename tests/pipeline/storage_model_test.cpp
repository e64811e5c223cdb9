// Tests the emulated disk's deadlines by arithmetic.
#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "pipeline/readers/storage.h"

namespace millrace::pipeline {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TEST(StorageModel, LatencyOverlapsAndTheBusDoesNot) {
  StorageModel disk({1e6, 0.010, 0});  // 1 MB/s: 1 ms per kB
  EXPECT_EQ(disk.finish_ns(5 * kMs, 1000), 16 * kMs);
  EXPECT_EQ(disk.finish_ns(5 * kMs, 1000), 17 * kMs) << "it asked at the same time";
  EXPECT_EQ(disk.finish_ns(6 * kMs, 2000), 19 * kMs);
  EXPECT_EQ(disk.finish_ns(100 * kMs, 1000), 111 * kMs) << "an idle bus is not saved up";
}

TEST(StorageModel, RequestsBeginOneAfterTheOther) {
  StorageModel disk({0, 0.002, 1000});
  EXPECT_EQ(disk.finish_ns(0, 1), 3 * kMs);
  EXPECT_EQ(disk.finish_ns(0, 1), 4 * kMs);
  EXPECT_EQ(disk.finish_ns(10 * kMs, 1), 13 * kMs);
}

TEST(StorageModel, NoLimitTakesNoTime) {
  EXPECT_FALSE(StorageOptions{}.limited());
  StorageModel disk({});
  EXPECT_EQ(disk.finish_ns(7, 1'000'000), 7);
}

TEST(StorageModel, AStopIsSeenSoon) {
  StorageModel disk({0, 3600, 0});
  std::atomic<bool> stop{false};
  const std::int64_t begin = base::Clock::steady_ns();
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    stop = true;
  });
  StorageModel::Lane lane;
  disk.serve(begin, 1, lane, stop);
  EXPECT_LT(base::Clock::steady_ns() - begin, 500 * kMs);
}

}  // namespace
}  // namespace millrace::pipeline
