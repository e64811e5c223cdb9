// The log of a block: of several claims one wins, and an overtaken claimant can never publish.
#include "study/sweep/block_log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "millrace/error.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class Blocks : public testing::Test {
 protected:
  Blocks() {
    std::string name = (fs::temp_directory_path() / "millrace-blocks-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
  }
  ~Blocks() override { fs::remove_all(folder_); }

  BlockLog log() const { return BlockLog(folder_ / "0001"); }
  /// Runs `work` in a child, and returns its id. The child stays until the test ends it.
  static pid_t in_child(const std::function<void()>& work) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      work();
      static_cast<void>(!write(ready[1], "x", 1));
      for (;;) pause();
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
  }
  fs::path folder_;
};

TEST_F(Blocks, OfManyClaimsOneWins) {
  constexpr int kRivals = 4;
  for (int entry = 1; entry <= 20; ++entry) {
    int gate[2];
    ASSERT_EQ(pipe(gate), 0);
    std::vector<pid_t> rivals;
    for (int i = 0; i < kRivals; ++i) {
      rivals.push_back(fork());
      if (rivals.back() != 0) continue;
      close(gate[1]);
      char byte = 0;
      static_cast<void>(!read(gate[0], &byte, 1));  // ends for all rivals at once
      _exit(BlockClaim::take(log(), entry, {}) ? 1 : 0);
    }
    close(gate[0]);
    close(gate[1]);
    int won = 0;
    for (const pid_t rival : rivals) {
      int status = 0;
      ASSERT_EQ(waitpid(rival, &status, 0), rival);
      ASSERT_TRUE(WIFEXITED(status));
      won += WEXITSTATUS(status);
    }
    EXPECT_EQ(won, 1) << "entry " << entry;
  }
}

TEST_F(Blocks, APublishedBlockIsClosed) {
  auto claim = BlockClaim::take(log(), 1, {{"block", 1}});
  ASSERT_TRUE(claim);
  EXPECT_FALSE(BlockClaim::take(log(), 1, {{"block", 1}})) << "claimed twice";
  EXPECT_TRUE(claim->publish({{"runs", {"a"}}}));
  const auto last = log().last();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, BlockEntry::Kind::result);
  EXPECT_EQ(last->attempt, 1);
  EXPECT_EQ(last->all["runs"][0], "a");
  EXPECT_EQ(last->owner.pid, getpid());
  for (const auto& entry : fs::directory_iterator(folder_ / "0001"))
    EXPECT_EQ(entry.path().string().find("draft"), std::string::npos) << entry.path();
}

TEST_F(Blocks, AnOvertakenClaimantCannotPublish) {
  auto first = BlockClaim::take(log(), 1, {});
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->is_overtaken());
  auto second = BlockClaim::take(log(), 2, {});
  ASSERT_TRUE(second);
  EXPECT_FALSE(first->publish({{"runs", 1}})) << "though the second has published nothing yet";
  EXPECT_TRUE(first->is_overtaken());
  EXPECT_TRUE(second->publish({{"runs", 1}}));
  EXPECT_EQ(log().last()->attempt, 2);
}

TEST_F(Blocks, AFailureFreesTheBlockAtOnce) {
  auto first = BlockClaim::take(log(), 1, {});
  first->give_up("no memory");
  EXPECT_EQ(log().last()->kind, BlockEntry::Kind::failure);
  EXPECT_EQ(log().last()->all["reason"], "no memory");
  auto next = BlockClaim::take(log(), 3, {});
  ASSERT_TRUE(next);
  EXPECT_TRUE(next->publish({{"runs", 1}}));
}

TEST_F(Blocks, AClaimantThatBeatsLives) {
  auto claim = BlockClaim::take(log(), 1, {});
  const BlockEntry entry = *log().last();
  std::atomic<bool> stop{false};
  std::thread claimant([&] {
    while (!stop) {
      claim->beat();
      std::this_thread::sleep_for(10ms);
    }
  });
  EXPECT_EQ(log().watch(entry, 10min).pulse, Pulse::beating);
  stop = true;
  claimant.join();
}

TEST_F(Blocks, AnEndedProcessOfThisMachineIsGoneAtOnce) {
  const pid_t pid = in_child([&] { BlockClaim::take(log(), 1, {}); });
  const BlockEntry entry = *log().last();
  EXPECT_EQ(entry.owner.pid, pid);
  EXPECT_EQ(log().watch(entry, 300ms).pulse, Pulse::silent) << "it lives and does not beat";
  kill(pid, SIGKILL);
  siginfo_t ended{};
  waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT);
  EXPECT_EQ(log().watch(entry, 10min).pulse, Pulse::gone) << "a zombie";
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(log().watch(entry, 10min).pulse, Pulse::gone);
}

TEST_F(Blocks, AnotherMachinesProcessIsJudgedByItsHeartbeatAlone) {
  auto claim = BlockClaim::take(log(), 1, {});
  BlockEntry entry = *log().last();
  entry.owner.space = "another machine";
  entry.owner.pid = 1;
  entry.owner.started = 1;
  EXPECT_EQ(log().watch(entry, 300ms).pulse, Pulse::silent);
  int looks = 0;
  const auto beat = [&] {
    std::this_thread::sleep_for(300ms);
    claim->beat();
    return ++looks < 1000;
  };
  EXPECT_EQ(log().watch(entry, 10min, beat).pulse, Pulse::beating);
  EXPECT_LT(looks, 1000);
}

TEST_F(Blocks, AHeartbeatThatIsSeenLateOnlyStartsTheObservation) {
  auto claim = BlockClaim::take(log(), 1, {});
  BlockEntry entry = *log().last();
  entry.owner.space = "another machine";
  const fs::path heartbeat = claim->folder() / "heartbeat";
  const fs::path hidden = claim->folder() / "not in this host's cache";
  fs::rename(heartbeat, hidden);
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [&] { return std::chrono::steady_clock::now() - begin; };
  const auto show = [&] {
    if (since() > 600ms && fs::exists(hidden)) fs::rename(hidden, heartbeat);
    return true;
  };
  const Observation silent = log().watch(entry, 100ms, show);
  EXPECT_EQ(silent.pulse, Pulse::silent) << "a heartbeat that does not grow";
  EXPECT_EQ(silent.patience, 100ms);
  EXPECT_GT(since(), 600ms) << "six times the patience";

  fs::rename(heartbeat, hidden);
  int looks = 0;
  const auto show_and_beat = [&] {
    if (++looks == 2) fs::rename(hidden, heartbeat);
    if (looks > 3) {
      std::this_thread::sleep_for(300ms);
      claim->beat();
    }
    return looks < 1000;
  };
  EXPECT_EQ(log().watch(entry, 10min, show_and_beat).pulse, Pulse::beating);
  EXPECT_GT(looks, 3) << "it has appeared, and not yet grown";
  EXPECT_LT(looks, 1000);
}

TEST_F(Blocks, AHeartbeatThatCannotBeReadIsNoBeat) {
  auto claim = BlockClaim::take(log(), 1, {});
  BlockEntry entry = *log().last();
  entry.owner.space = "another machine";
  const auto empty = [&] {
    std::ofstream(claim->folder() / "heartbeat").close();
    return true;
  };
  EXPECT_EQ(log().watch(entry, 300ms, empty).pulse, Pulse::silent);
}

TEST_F(Blocks, TheHeartbeatPrecedesTheClaim) {
  ASSERT_TRUE(BlockClaim::take(log(), 1, {}));
  fs::remove_all(log().attempt(1));
  EXPECT_FALSE(BlockClaim::take(log(), 1, {})) << "it is too late";
  EXPECT_TRUE(fs::exists(log().attempt(1) / "heartbeat")) << "though it was not too late for this";
}

TEST_F(Blocks, CompleteRunsThatCouldNotBePublishedAreLeftToOthers) {
  auto first = BlockClaim::take(log(), 1, {});
  BlockEntry entry = *log().last();
  entry.owner.space = "another machine";
  EXPECT_FALSE(log().has_left(entry));
  EXPECT_TRUE(first->leave());
  EXPECT_TRUE(log().has_left(entry));
  EXPECT_EQ(log().watch(entry, 10min).pulse, Pulse::left);
  auto second = BlockClaim::take(log(), 2, {});
  ASSERT_TRUE(second);
  EXPECT_FALSE(first->publish({{"runs", 1}}));
  EXPECT_TRUE(second->publish({{"runs", 1}}));
}

TEST_F(Blocks, ADamagedEntryIsNamed) {
  fs::create_directories(folder_ / "0001");
  std::ofstream(folder_ / "0001/1.json") << "{}";
  EXPECT_THROW(log().last(), DataError);
}

}  // namespace
}  // namespace millrace::study
