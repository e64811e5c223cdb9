// Replica threads: each runs every round on its own thread, concurrently, and failures are reported
// in the replicas' order after all have ended.
#include "strategies/trainer/replica_threads.h"

#include <gtest/gtest.h>

#include <barrier>
#include <set>
#include <stdexcept>
#include <string>

namespace millrace::train {
namespace {

TEST(ReplicaThreads, EveryReplicaHasAThreadForLife) {
  constexpr int kCount = 4;
  constexpr int kRounds = 3000;
  ReplicaThreads threads(kCount);
  EXPECT_EQ(threads.count(), kCount);
  std::vector<std::thread::id> ids(kCount);
  std::vector<int> rounds(kCount);  // each written by its replica, read here between rounds
  for (int round = 0; round < kRounds; ++round) {
    threads.run(
        [&](int replica) {
          const auto i = static_cast<std::size_t>(replica);
          if (round == 0) ids[i] = std::this_thread::get_id();
          rounds[i] += ids[i] == std::this_thread::get_id();
        },
        {});
    ASSERT_EQ(rounds, std::vector<int>(kCount, round + 1));
  }
  EXPECT_EQ(ids[0], std::this_thread::get_id()) << "the first works on the caller's";
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), std::size_t{kCount});
}

TEST(ReplicaThreads, AllRunAtOnceAndWaitingComesAfterTheFirst) {
  ReplicaThreads threads(3);
  std::barrier all(3);  // would deadlock if one replica waited for another to end
  bool first_done = false, waited = false;
  threads.run(
      [&](int replica) {
        all.arrive_and_wait();
        if (replica == 0) first_done = true;
      },
      [&] { waited = first_done; });
  EXPECT_TRUE(waited);
}

TEST(ReplicaThreads, OneReplicaNeedsNoThread) {
  ReplicaThreads threads(1);
  int calls = 0;
  threads.run([&](int replica) { calls += replica == 0; }, [&] { calls += 10; });
  EXPECT_EQ(calls, 11);
}

TEST(ReplicaThreads, TheLowestFailureIsThrownWhenAllHaveEnded) {
  ReplicaThreads threads(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> ended(4);
    const int lowest = round % 4;
    bool waited = false;
    try {
      threads.run(
          [&](int replica) {
            ended[static_cast<std::size_t>(replica)] = 1;
            if (replica >= lowest) throw std::runtime_error("replica " + std::to_string(replica));
          },
          [&] { waited = true; });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "replica " + std::to_string(lowest));
    }
    EXPECT_EQ(ended, std::vector<int>(4, 1));
    EXPECT_TRUE(waited);
    // A failure does not affect the next round.
    EXPECT_NO_THROW(threads.run([](int) {}, {}));
  }
}

}  // namespace
}  // namespace millrace::train
