// Tests the budget for large samples: it never grants more than it has, keeps the order, always
// finishes and releases waiting threads.
#include "pipeline/loader/memory_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "millrace/buffer.h"

namespace millrace::pipeline {
namespace {

void wait_for_waiters(const MemoryBudget& budget, std::size_t count) {
  while (budget.waiting() < count) std::this_thread::yield();
}

TEST(Buffer, ASizeThatNoMemoryHoldsIsRefused) {
  Buffer buffer;
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX - 64, SIZE_MAX / 5 * 4 + 1, SIZE_MAX / 2 + 1})
    EXPECT_THROW(buffer.reserve(size), std::bad_alloc) << size;
  EXPECT_NE(buffer.reserve(1), nullptr);
}

TEST(MemoryBudget, EarlierSamplesComeFirst) {
  MemoryBudget budget(100, 5);
  ASSERT_EQ(budget.acquire(100, {7, 0}), 100u);
  const std::vector<MemoryBudget::Turn> places{{2, 0}, {1, 5}, {3, 1}, {1, 0}};
  std::vector<MemoryBudget::Turn> order;  // one sample at a time holds all of it
  {
    std::vector<std::jthread> threads;
    for (const MemoryBudget::Turn place : places)
      threads.emplace_back([&budget, &order, place] {
        ASSERT_EQ(budget.acquire(100, place), 100u);
        order.push_back(place);
        budget.release(100);
      });
    wait_for_waiters(budget, places.size());
    budget.release(100);
  }
  EXPECT_EQ(order, (std::vector<MemoryBudget::Turn>{{1, 0}, {1, 5}, {2, 0}, {3, 1}}));
}

TEST(MemoryBudget, ALaterOneDoesNotPassAnEarlierOneThatWaits) {
  MemoryBudget budget(100, 2);
  ASSERT_EQ(budget.acquire(60, {0, 0}), 60u);
  std::atomic<bool> large{false}, small{false};
  std::jthread first([&] {
    budget.acquire(80, {1, 0});
    large.store(true);
  });
  wait_for_waiters(budget, 1);
  std::jthread second([&] {
    budget.acquire(20, {2, 0});  // would fit
    small.store(true);
  });
  wait_for_waiters(budget, 2);
  EXPECT_FALSE(large.load() || small.load());
  budget.release(60);
  first.join();
  second.join();
  EXPECT_TRUE(large.load() && small.load());
}

TEST(MemoryBudget, MoreThanThereIsCountsAsAll) {
  MemoryBudget budget(100, 1);
  EXPECT_EQ(budget.acquire(1'000'000, {0, 0}), 100u);
  budget.release(100);
}

TEST(MemoryBudget, ManyThreadsComeToAnEndWithinTheBudget) {
  constexpr std::uint64_t kBytes = 100;
  constexpr std::uint64_t kThreads = 8;
  MemoryBudget budget(kBytes, kThreads);
  std::atomic<std::uint64_t> used{0}, most{0}, next{0};
  std::vector<std::jthread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t i; (i = next.fetch_add(1)) < 4000;) {
        Draw draw(base::stream({1, 0, i}, base::op_id("budget")));
        const std::uint64_t got = budget.acquire(1 + draw.integer(130), {i / 16, std::int64_t(i)});
        const std::uint64_t now = used.fetch_add(got) + got;
        for (std::uint64_t seen = most.load();
             seen < now && !most.compare_exchange_weak(seen, now);)
          ;
        if (draw.chance(.2)) std::this_thread::yield();
        used.fetch_sub(got);
        budget.release(got);
      }
    });
  threads.clear();
  EXPECT_EQ(used.load(), 0u);
  EXPECT_LE(most.load(), kBytes);
}

TEST(MemoryBudget, StopLetsGo) {
  MemoryBudget budget(100, 2);
  budget.acquire(100, {0, 0});
  std::jthread waiter([&] { EXPECT_EQ(budget.acquire(1, {1, 0}), 0u); });
  wait_for_waiters(budget, 1);
  budget.stop();
  waiter.join();
  EXPECT_EQ(budget.acquire(1, {2, 0}), 0u);
}

}  // namespace
}  // namespace millrace::pipeline
