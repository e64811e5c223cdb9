// Threads on shared cores against closed forms.
#include "predict/shared_cores.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace::predict {
namespace {

std::vector<std::size_t> next(SharedCores& cores) {
  const auto ended = cores.advance();
  return {ended.begin(), ended.end()};
}

TEST(SharedCores, ThreadsShareCoresEqually) {
  SharedCores cores({.count = 2}, 3);
  for (std::size_t thread = 0; thread < 3; ++thread)
    cores.run(thread, Work::stage, thread == 2 ? 0.030 : 0.010);
  EXPECT_EQ(next(cores), (std::vector<std::size_t>{0, 1})) << "in the order of their starts";
  EXPECT_NEAR(cores.now(), 0.015, 1e-12) << "three threads on two cores";
  EXPECT_TRUE(cores.is_idle(0));
  EXPECT_FALSE(cores.is_idle(2));
  EXPECT_EQ(next(cores), std::vector<std::size_t>{2});
  EXPECT_NEAR(cores.now(), 0.035, 1e-12) << "alone for the rest";
  EXPECT_NEAR(cores.busy_s(), 0.050, 1e-12);
  EXPECT_TRUE(next(cores).empty()) << "nothing is left";
}

TEST(SharedCores, SleepersWantNoCore) {
  SharedCores cores({.count = 1}, 3);
  cores.sleep_until(0, 0.004);
  cores.run(1, Work::update, 0.010);
  cores.run(2, Work::host, 0);
  EXPECT_EQ(next(cores), std::vector<std::size_t>{2}) << "without work it is done at once";
  EXPECT_EQ(cores.now(), 0);
  EXPECT_EQ(next(cores), std::vector<std::size_t>{0});
  EXPECT_EQ(next(cores), std::vector<std::size_t>{1});
  EXPECT_NEAR(cores.now(), 0.010, 1e-12);
}

TEST(SharedCores, AWokenSleeperIsNext) {
  SharedCores cores({.count = 1}, 3);
  cores.sleep_until(0, 0.004);
  cores.sleep_until(1, 0.005);
  cores.run(2, Work::stage, 0.001);
  EXPECT_EQ(next(cores), std::vector<std::size_t>{2});
  cores.wake(2);  // which is idle
  cores.wake(0);
  EXPECT_FALSE(cores.is_idle(0));
  EXPECT_EQ(next(cores), std::vector<std::size_t>{0});
  EXPECT_NEAR(cores.now(), 0.001, 1e-12);
  EXPECT_EQ(next(cores), std::vector<std::size_t>{1});
  EXPECT_NEAR(cores.now(), 0.005, 1e-12) << "others sleep on";
}

TEST(SharedCores, BusyCoresSlowWorkDown) {
  SharedCores cores({.count = 3, .crowding = {2, 1, 1}}, 3);
  cores.run(0, Work::stage, 0.010);
  cores.run(1, Work::update, 0.100);
  EXPECT_EQ(next(cores), std::vector<std::size_t>{0});
  EXPECT_NEAR(cores.now(), 0.015, 1e-12) << "half of the two cores beside the first are busy";
}

TEST(SharedCores, RanksWantCoresToo) {
  SharedCores cores({.count = 2, .ranks = 4}, 1);
  cores.run(0, Work::stage, 0.010);
  next(cores);
  EXPECT_NEAR(cores.now(), 0.020, 1e-12);
  EXPECT_NEAR(cores.busy_s(), 0.040, 1e-12) << "of all ranks";
}

TEST(SharedCores, SpinningPoolsNeedAllTheirCores) {
  EXPECT_DOUBLE_EQ(progress(2, 4, 2, true), 1.0 / 6) << "of the six pairs among four threads";
  EXPECT_DOUBLE_EQ(progress(2, 4, 2, false), 0.5);
  EXPECT_EQ(progress(2, 4, 4, true), 1);
  EXPECT_EQ(progress(1, 4, 2, true), 0.5) << "one thread waits for no other";
  EXPECT_DOUBLE_EQ(progress(16, 24, 16, true), 1.0 / 60);
}

}  // namespace
}  // namespace millrace::predict
