// Ranks as processes: one is killed or stopped, and the others leave and name it.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "strategies/control/control_channel.h"

namespace millrace::train {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr double kTimeout = 2;  // in seconds
/// Additional seconds, for a machine that is busy with other work.
constexpr double kMargin = 6;

void write_line(int fd, const std::string& line) {
  static_cast<void>(!write(fd, (line + "\n").data(), line.size() + 1));
}

/// Runs a rank: endless steps of 10 ms, half of each in a collective.
[[noreturn]] void be_rank(int rank, int world, int port, int out, int fails_at) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    static std::atomic<bool> interrupted{false};
    signal(SIGTERM, [](int) { interrupted = true; });
    const ControlOptions options{
        rank, world, kTimeout, 42, &interrupted, [out](const FailureReport& report) {
          write_line(out, report.text());
          _exit(report.kind == FailureKind::interrupted ? 130 : 1);
        }};
    const auto channel = rank == 0 ? ControlChannel::serve(options, "127.0.0.1")
                                   : ControlChannel::connect(options, "127.0.0.1", port, 30);
    if (rank == 0) write_line(out, "port " + std::to_string(channel->port()));
    channel->wait_for_ranks(30);
    write_line(out, "met");
    for (int step = 1; step < 6000; ++step) {
      if (step == fails_at) {
        channel->fail("bad sample 7");
        _exit(3);
      }
      channel->progress(static_cast<std::uint64_t>(step), false);
      std::this_thread::sleep_for(5ms);
      channel->progress(static_cast<std::uint64_t>(step), true);
      std::this_thread::sleep_for(5ms);
    }
  } catch (const std::exception& error) {
    write_line(out, error.what());
  }
  _exit(9);
}

class RankProcesses {
 public:
  explicit RankProcesses(int world, int failing = -1) {
    int port = 0;
    for (int rank = 0; rank < world; ++rank) {
      int ends[2];
      if (pipe(ends) != 0) throw std::runtime_error("no pipe");
      const pid_t pid = fork();
      if (pid == 0) {
        close(ends[0]);
        be_rank(rank, world, port, ends[1], rank == failing ? 50 : -1);
      }
      close(ends[1]);
      processes_.push_back({pid, ends[0]});
      if (rank == 0) port = std::stoi(line_of(0).substr(5));
    }
    for (int rank = 0; rank < world; ++rank) EXPECT_EQ(line_of(rank), "met");
  }
  ~RankProcesses() {
    for (Process& one : processes_) {
      close(one.out);
      if (one.ended) continue;
      kill(one.pid, SIGKILL);
      waitpid(one.pid, nullptr, 0);
    }
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t pid(int rank) const { return processes_[static_cast<std::size_t>(rank)].pid; }

  /// Returns the next line of a rank; empty if there is none within 30 s.
  std::string line_of(int rank) {
    std::string line;
    for (char c = 0;;) {
      pollfd one{processes_[static_cast<std::size_t>(rank)].out, POLLIN, 0};
      if (poll(&one, 1, 30'000) <= 0 || read(one.fd, &c, 1) != 1 || c == '\n') return line;
      line += c;
    }
  }
  /// Waits for its end. Returns the exit code, or -signal.
  int end_of(int rank) {
    Process& one = processes_[static_cast<std::size_t>(rank)];
    int status = 0;
    for (int i = 0; i < 3000 && !one.ended; ++i) {
      one.ended = waitpid(one.pid, &status, WNOHANG) == one.pid;
      if (!one.ended) std::this_thread::sleep_for(10ms);
    }
    if (!one.ended) return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  struct Process {
    pid_t pid;
    int out;
    bool ended = false;
  };
  std::vector<Process> processes_;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Victim : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(ControlProcess, Victim, testing::Values(0, 1, 2),
                         testing::PrintToStringParamName());

TEST_P(Victim, KilledIsNamedAtOnce) {
  RankProcesses ranks(3);
  std::this_thread::sleep_for(500ms);
  const auto begin = Clock::now();
  kill(ranks.pid(GetParam()), SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == GetParam()) continue;
    EXPECT_EQ(ranks.end_of(rank), 1);
    const std::string line = ranks.line_of(rank);
    EXPECT_TRUE(line.starts_with("rank " + std::to_string(GetParam()) + " (")) << line;
    EXPECT_NE(line.find("pid " + std::to_string(ranks.pid(GetParam())) + ") died at step "),
              std::string::npos)
        << line;
  }
  EXPECT_LT(seconds_since(begin), kTimeout) << "a closed connection needs no time-out";
}

TEST_P(Victim, StoppedIsNamedWithinTheTimeout) {
  RankProcesses ranks(3);
  std::this_thread::sleep_for(500ms);
  const auto begin = Clock::now();
  kill(ranks.pid(GetParam()), SIGSTOP);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == GetParam()) continue;
    EXPECT_EQ(ranks.end_of(rank), 1);
    const std::string line = ranks.line_of(rank);
    EXPECT_TRUE(line.starts_with("rank " + std::to_string(GetParam()) + " (")) << line;
    EXPECT_NE(line.find("has not been heard from for"), std::string::npos) << line;
  }
  EXPECT_LT(seconds_since(begin), kTimeout + kMargin);
  kill(ranks.pid(GetParam()), SIGCONT);  // it learns that the others have given it up
  EXPECT_EQ(ranks.end_of(GetParam()), 1);
  const std::string line = ranks.line_of(GetParam());
  EXPECT_TRUE(line.starts_with("rank " + std::to_string(GetParam()) + " (")) << line;
}

TEST_P(Victim, ErrorIsToldToTheOthers) {
  RankProcesses ranks(3, GetParam());
  EXPECT_EQ(ranks.end_of(GetParam()), 3) << "its own exit code";
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == GetParam()) continue;
    EXPECT_EQ(ranks.end_of(rank), 1);
    const std::string line = ranks.line_of(rank);
    EXPECT_NE(line.find("ended at step 49: bad sample 7"), std::string::npos) << line;
    EXPECT_TRUE(line.starts_with("rank " + std::to_string(GetParam()) + " (")) << line;
  }
}

TEST_P(Victim, AnInterruptDoesNotWaitForAStoppedRank) {
  RankProcesses ranks(3);
  std::this_thread::sleep_for(500ms);
  kill(ranks.pid(GetParam()), SIGSTOP);
  const auto begin = Clock::now();
  kill(ranks.pid(GetParam() == 1 ? 2 : 1), SIGTERM);
  // Rank 0 informs the others.
  if (GetParam() == 0) kill(ranks.pid(2), SIGTERM);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == GetParam()) continue;
    EXPECT_EQ(ranks.end_of(rank), 130);
    const std::string line = ranks.line_of(rank);
    EXPECT_TRUE(line.starts_with("interrupted at step ")) << line;
    EXPECT_NE(line.find("but rank " + std::to_string(GetParam()) + " ("), std::string::npos)
        << line;
  }
  EXPECT_LT(seconds_since(begin), kMargin) << "2 s on a machine that is free";
}

TEST(ControlProcess, AShortStopIsForgiven) {
  RankProcesses ranks(3);
  for (const int victim : {0, 1}) {
    kill(ranks.pid(victim), SIGSTOP);
    std::this_thread::sleep_for(600ms);
    kill(ranks.pid(victim), SIGCONT);
    std::this_thread::sleep_for(300ms);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(waitpid(ranks.pid(rank), nullptr, WNOHANG), 0) << "rank " << rank << " has left";
  }
}

TEST(ControlProcess, TwoKilledAtOnceEndTheOthersToo) {
  RankProcesses ranks(4);
  kill(ranks.pid(2), SIGKILL);
  kill(ranks.pid(0), SIGKILL);
  for (const int rank : {1, 3}) {
    EXPECT_EQ(ranks.end_of(rank), 1);
    const std::string line = ranks.line_of(rank);
    EXPECT_TRUE(line.starts_with("rank 0 (") || line.starts_with("rank 2 (")) << line;
  }
}

}  // namespace
}  // namespace millrace::train
