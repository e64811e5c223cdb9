// Control channel: which rank is named when one dies, stops, hangs or ends by an error. Ranks are
// channels in threads here; control_process_test.cpp kills and stops processes.
#include "strategies/control/control_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/descriptor.h"
#include "millrace/error.h"
#include "strategies/control/socket.h"

namespace millrace::train {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr double kTimeout = 2;   // seconds; heartbeats come every 0.2 s
constexpr auto kPatience = 20s;  // longest wait for an expected event, for busy machines

/// A rank's end of the channel, and the reports it received.
class Rank {
 public:
  Rank(int rank, int world, int port = 0, std::uint64_t key = 0) {
    const ControlOptions options{
        rank, world, kTimeout, key, &interrupted, [this](const FailureReport& report) {
          const std::lock_guard lock(mutex_);
          report_ = report;
          at_ = Clock::now();
          told_.notify_all();
        }};
    channel = rank == 0 ? ControlChannel::serve(options, "127.0.0.1")
                        : ControlChannel::connect(options, "127.0.0.1", port, 20);
  }
  std::optional<FailureReport> report(Clock::duration patience = kPatience) {
    std::unique_lock lock(mutex_);
    told_.wait_for(lock, patience, [this] { return report_.has_value(); });
    return report_;
  }
  Clock::time_point at() const { return at_; }

  std::atomic<bool> interrupted{false};  ///< set by a signal

 private:
  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<FailureReport> report_;
  Clock::time_point at_;

 public:
  std::unique_ptr<ControlChannel> channel;  ///< destroyed before the members that its thread writes
};

/// Returns all ranks of a run, connected.
std::vector<std::unique_ptr<Rank>> meet(int world) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(std::make_unique<Rank>(rank, world, rank == 0 ? 0 : ranks[0]->channel->port()));
  for (auto& rank : ranks) rank->channel->wait_for_ranks(20);
  return ranks;
}

void expect_named(Rank& by, int rank, FailureKind kind) {
  const auto report = by.report();
  ASSERT_TRUE(report) << "nobody was named";
  EXPECT_EQ(report->rank, rank) << report->text();
  EXPECT_EQ(report->kind, kind) << report->text();
  EXPECT_EQ(report->pid, static_cast<std::uint64_t>(getpid()));
  EXPECT_FALSE(report->host.empty());
}

TEST(OwnAddress, IsThatOfTheRoute) { EXPECT_EQ(own_address_to("127.0.0.1"), "127.0.0.1"); }

TEST(Control, RanksMeetAndPart) {
  auto ranks = meet(4);
  for (int step = 1; step <= 50; ++step) {
    for (auto& rank : ranks) rank->channel->progress(static_cast<std::uint64_t>(step), step % 2);
    std::this_thread::sleep_for(10ms);
  }
  ranks[2]->channel->goodbye();
  ranks[0]->channel->goodbye();
  std::this_thread::sleep_for(300ms);
  ranks[1]->channel->goodbye();
  ranks[3]->channel->goodbye();
  for (auto& rank : ranks) EXPECT_FALSE(rank->report(0s));
}

TEST(Control, OneRankIsEnough) {
  Rank only(0, 1);
  only.channel->wait_for_ranks(5);
  only.channel->progress(1, true);
  only.channel->goodbye();
  only.channel->goodbye();
  EXPECT_FALSE(only.report(0s));
}

TEST(Control, AMissingRankIsNamed) {
  Rank zero(0, 4);
  Rank two(2, 4, zero.channel->port());
  try {
    // Rank 2's hello has been answered, so it counts as connected.
    zero.channel->wait_for_ranks(0.2);
    FAIL() << "ranks 1 and 3 were never started";
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(), "ranks 1, 3 of 4 have not come within 0.2 s");
  }
  zero.channel->fail("ranks 1, 3 of 4 have not come");
  expect_named(two, 0, FailureKind::ended);
  EXPECT_THROW(two.channel->wait_for_ranks(0), RunError);
}

TEST(Control, RankZeroThatIsNotThereIsSaid) {
  const ControlOptions options{1, 2, kTimeout, 0};
  int port = 0;
  {
    const base::Descriptor free = listen_on("127.0.0.1");
    port = port_of(free);
  }
  try {
    ControlChannel::connect(options, "127.0.0.1", port, 0.3);
    FAIL();
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 0 cannot be reached at 127.0.0.1"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(ControlChannel::connect(options, "no.such.host.invalid", 1, 0.3), RunError);
  EXPECT_THROW(ControlChannel::serve({0, 2, kTimeout, 0}, "192.0.2.1"), RunError);
}

TEST(Control, WhoDoesNotBelongIsRefused) {
  auto ranks = meet(3);
  const int port = ranks[0]->channel->port();
  const auto refusal = [&](int rank, int world, std::uint64_t key) -> std::string {
    try {
      const Rank one(rank, world, port, key);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_NE(refusal(1, 4, 0).find("its world size is 4, rank 0's is 3"), std::string::npos);
  EXPECT_NE(refusal(1, 3, 0).find("it is already connected"), std::string::npos);
  EXPECT_NE(refusal(1, 3, 7).find("another run"), std::string::npos);
  EXPECT_THROW(Rank(3, 3, port), UsageError);
  for (auto& rank : ranks) EXPECT_FALSE(rank->report(0s));
  for (auto& rank : ranks) rank->channel->goodbye();
}

TEST(Control, StrangersDoNoHarm) {
  Rank zero(0, 2);
  const int port = zero.channel->port();
  const auto deadline = Clock::now() + kPatience;
  std::vector<base::Descriptor> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect_to("127.0.0.1", port, deadline));
  Goodbye goodbye{1, "from nobody"};
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100'000, '\xFF'),
        std::string(4096, '\0'), encode(goodbye), encode(Hello{0, 2, 1, 1, "h"}).substr(0, 9),
        encode(FailureReport{FailureKind::died, 0, 1, "h", 1, 0, "r"}), encode(Welcome{})}) {
    const base::Descriptor stranger = connect_to("127.0.0.1", port, deadline);
    static_cast<void>(!send(stranger.get(), words.data(), words.size(), MSG_NOSIGNAL));
  }
  Rank one(1, 2, port);
  zero.channel->wait_for_ranks(20);
  one.channel->wait_for_ranks(20);
  // A peer that sends a correct hello and then garbage is a rank, here one that is already
  // connected.
  const base::Descriptor late = connect_to("127.0.0.1", port, deadline);
  const std::string words = encode(Hello{0, 2, 1, 1, "h"}) + encode(goodbye);
  static_cast<void>(!send(late.get(), words.data(), words.size(), MSG_NOSIGNAL));
  EXPECT_FALSE(one.report(500ms));
  EXPECT_FALSE(zero.report(0s));
  one.channel->goodbye();
  zero.channel->goodbye();
}

TEST(Control, SilentStrangersDoNotHoldUpAStart) {
  // More connections than are kept; the ranks come after all of them.
  Rank zero(0, 4);
  const int port = zero.channel->port();
  const auto deadline = Clock::now() + kPatience;
  std::vector<base::Descriptor> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connect_to("127.0.0.1", port, deadline));
  const auto begin = Clock::now();
  std::vector<std::unique_ptr<Rank>> others;
  for (int rank = 1; rank < 4; ++rank) others.push_back(std::make_unique<Rank>(rank, 4, port));
  zero.channel->wait_for_ranks(20);
  EXPECT_LT(Clock::now() - begin, 10s);
  // Most were closed to make room, the rest for sending nothing.
  const auto closed = [&] {
    return std::count_if(silent.begin(), silent.end(), [](const base::Descriptor& one) {
      char byte = 0;
      const ssize_t n = recv(one.get(), &byte, 1, MSG_DONTWAIT);
      return n == 0 || (n < 0 && errno == ECONNRESET);
    });
  };
  EXPECT_GE(closed(), 200);
  while (closed() < 300 && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
  EXPECT_EQ(closed(), 300);
  for (auto& rank : others) rank->channel->goodbye();
  zero.channel->goodbye();
  EXPECT_FALSE(zero.report(0s));
}

TEST(Control, AnInterruptBeforeTheFirstStepEndsAllAtOnce) {
  for (const int asked : {0, 2}) {
    auto ranks = meet(3);
    ranks[1]->channel->progress(1, true);  // waits for the others, which are still preparing
    const auto before = Clock::now();
    ranks[static_cast<std::size_t>(asked)]->interrupted = true;
    for (auto& rank : ranks) {
      ASSERT_TRUE(rank->report());
      EXPECT_EQ(rank->report()->kind, FailureKind::interrupted);
      EXPECT_EQ(rank->report()->text(), "interrupted before the first step");
      EXPECT_TRUE(rank->interrupted) << "all ranks know";
    }
    EXPECT_LT(ranks[0]->at() - before, 6s);
  }
}

TEST(Control, AnInterruptWhileRanksAreMissingEndsThoseThatAreThere) {
  Rank zero(0, 3);
  Rank two(2, 3, zero.channel->port());
  zero.interrupted = true;
  for (Rank* one : {&zero, &two}) {
    ASSERT_TRUE(one->report());
    EXPECT_EQ(one->report()->text(), "interrupted before the first step");
  }
}

TEST(Control, AnInterruptOfRanksAtWorkIsTheirs) {
  // They must agree on a last step; the channel only informs all of them.
  auto ranks = meet(3);
  for (auto& rank : ranks) rank->channel->progress(5, false);
  ranks[1]->channel->progress(5, true);
  ranks[2]->interrupted = true;
  const auto deadline = Clock::now() + kPatience;
  for (auto& rank : ranks)
    while (!rank->interrupted && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
  for (auto& rank : ranks) EXPECT_TRUE(rank->interrupted);
  for (std::uint64_t step = 6; step < 30; ++step) {  // of 100 ms: longer than any answer takes
    for (auto& rank : ranks) rank->channel->progress(step, false);
    ASSERT_FALSE(ranks[0]->report(100ms)) << ranks[0]->report()->text();
  }
  for (auto& rank : ranks) rank->channel->goodbye();
  for (auto& rank : ranks) EXPECT_FALSE(rank->report(0s));
}

TEST(Control, ARankThatLeavesAfterAnInterruptIsNoFailure) {
  // A second signal ended it.
  auto ranks = meet(3);
  for (auto& rank : ranks) rank->channel->progress(5, false);
  for (auto& rank : ranks) rank->interrupted = true;
  std::this_thread::sleep_for(500ms);
  ranks[1]->channel.reset();
  for (const int rank : {0, 2})
    expect_named(*ranks[static_cast<std::size_t>(rank)], 1, FailureKind::interrupted);
}

TEST(Control, AStrangerIsNotTakenForRankZero) {
  const base::Descriptor listener = listen_on("127.0.0.1");
  std::thread stranger([&] {
    wait_readable(listener, Clock::now() + kPatience);
    const base::Descriptor fd = accept_from(listener);
    const std::string words = "HTTP/1.1 400 Bad Request\r\n\r\n";
    static_cast<void>(!send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL));
  });
  EXPECT_THROW(ControlChannel::connect({1, 2, kTimeout, 0}, "127.0.0.1", port_of(listener), 20),
               RunError);
  stranger.join();
}

TEST(Control, ARankThatGoesWithoutAWordHasDied) {
  for (const int victim : {0, 1}) {
    auto ranks = meet(3);
    ranks[static_cast<std::size_t>(victim)]->channel->progress(17, false);
    std::this_thread::sleep_for(1s);  // a heartbeat carries the step
    const auto before = Clock::now();
    ranks[static_cast<std::size_t>(victim)]->channel.reset();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      Rank& one = *ranks[static_cast<std::size_t>(rank)];
      expect_named(one, victim, FailureKind::died);
      EXPECT_EQ(one.report()->step, 17u);
      EXPECT_LT(one.at() - before, 1500ms) << "noticed at once";
    }
    EXPECT_FALSE(ranks[static_cast<std::size_t>(victim)]->report(0s));
  }
}

TEST(Control, AnErrorIsToldToAll) {
  for (const int victim : {0, 1}) {
    auto ranks = meet(3);
    Rank& one = *ranks[static_cast<std::size_t>(victim)];
    one.channel->progress(120, true);
    one.channel->fail("images/7.jpg: cannot be decoded\nsecond line");
    EXPECT_FALSE(one.report(0s)) << "it knows its own error";
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      Rank& other = *ranks[static_cast<std::size_t>(rank)];
      expect_named(other, victim, FailureKind::ended);
      EXPECT_EQ(other.report()->step, 120u);
      EXPECT_EQ(other.report()->reason, "images/7.jpg: cannot be decoded");
      EXPECT_NE(other.report()->text().find("ended at step 120: images/7.jpg"), std::string::npos);
    }
  }
}

TEST(Control, WhatOnlyFollowsFromADeathIsNotBlamed) {
  // Rank 2 is killed. The collectives of ranks 1 and 0 fail, and they report that before its death
  // is detected.
  auto ranks = meet(4);
  std::thread first([&] { ranks[1]->channel->fail("connection closed by peer"); });
  std::thread second([&] { ranks[0]->channel->fail("connection closed by peer"); });
  std::this_thread::sleep_for(20ms);
  ranks[2]->channel.reset();
  first.join();
  second.join();
  for (const int rank : {0, 1, 3})
    expect_named(*ranks[static_cast<std::size_t>(rank)], 2, FailureKind::died);
}

TEST(Control, WhatOnlyFollowsFromTheDeathOfRankZeroIsNotBlamed) {
  auto ranks = meet(3);
  std::thread first([&] { ranks[1]->channel->fail("connection closed by peer"); });
  std::thread second([&] { ranks[2]->channel->fail("connection closed by peer"); });
  std::this_thread::sleep_for(20ms);
  ranks[0]->channel.reset();
  first.join();
  second.join();
  for (const int rank : {1, 2})
    expect_named(*ranks[static_cast<std::size_t>(rank)], 0, FailureKind::died);
}

TEST(Control, TheFirstOfTwoErrorsIsTheCause) {
  auto ranks = meet(3);
  std::thread first([&] { ranks[2]->channel->fail("out of memory"); });
  std::this_thread::sleep_for(100ms);
  ranks[1]->channel->fail("connection closed by peer");
  first.join();
  expect_named(*ranks[0], 2, FailureKind::ended);
  expect_named(*ranks[1], 2, FailureKind::ended);
  EXPECT_FALSE(ranks[2]->report(0s));
}

TEST(Control, AStuckTrainerThreadIsNamed) {
  for (const int victim : {0, 1}) {
    auto ranks = meet(3);
    const auto before = Clock::now();
    for (int rank = 0; rank < 3; ++rank)
      ranks[static_cast<std::size_t>(rank)]->channel->progress(7, rank != victim);
    for (auto& rank : ranks) {
      expect_named(*rank, victim, FailureKind::stuck);
      EXPECT_EQ(rank->report()->step, 7u);
      EXPECT_GT(rank->report()->idle_s, kTimeout * 0.7);
      EXPECT_GT(rank->at() - before, 1400ms);
    }
  }
}

TEST(Control, SlowRanksAreLeftAlone) {
  auto ranks = meet(3);
  // Two long steps of all ranks; then one that others wait for, which continues just in time; then
  // all wait in one collective.
  for (auto& rank : ranks) rank->channel->progress(1, false);
  EXPECT_FALSE(ranks[0]->report(2500ms)) << ranks[0]->report()->text();
  for (auto& rank : ranks) rank->channel->progress(2, false);
  ranks[1]->channel->progress(2, true);
  for (std::uint64_t i = 0; i < 10; ++i) {
    ranks[0]->channel->progress(3 + i, false);
    ranks[2]->channel->progress(3 + i, false);
    EXPECT_FALSE(ranks[0]->report(300ms)) << ranks[0]->report()->text();
  }
  for (auto& rank : ranks) rank->channel->progress(20, true);
  EXPECT_FALSE(ranks[0]->report(2500ms)) << ranks[0]->report()->text();
  for (auto& rank : ranks) rank->channel->goodbye();
}

TEST(Control, ARankThatIsDoneButWaitedForIsNamed) {
  auto ranks = meet(3);
  ranks[1]->channel->progress(10, false);
  ranks[1]->channel->goodbye();
  ranks[0]->channel->progress(11, true);
  ranks[2]->channel->progress(11, true);
  for (const int rank : {0, 2}) {
    Rank& one = *ranks[static_cast<std::size_t>(rank)];
    expect_named(one, 1, FailureKind::ended);
    EXPECT_NE(one.report()->text().find("ended at step 10: it was done"), std::string::npos);
  }
}

TEST(Control, OptionsWithoutSenseAreRefused) {
  EXPECT_THROW(ControlChannel::serve({0, 0, 1, 0}), UsageError);
  EXPECT_THROW(ControlChannel::serve({2, 2, 1, 0}), UsageError);
  EXPECT_THROW(ControlChannel::serve({0, 2, 0, 0}), UsageError);
  EXPECT_THROW(ControlChannel::serve({0, 2, std::nan(""), 0}), UsageError);
}

TEST(Control, ComesAndGoesAHundredTimes) {
  for (int round = 0; round < 100; ++round) {
    auto ranks = meet(3);
    for (auto& rank : ranks) rank->channel->progress(1, round % 2 == 0);
    for (auto& rank : ranks) rank->channel->goodbye();
    for (auto& rank : ranks) ASSERT_FALSE(rank->report(0s)) << rank->report()->text();
  }
}

}  // namespace
}  // namespace millrace::train
