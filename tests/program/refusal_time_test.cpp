// How long the program takes to refuse: a mistake is answered while its author still looks.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

constexpr double kLongestRefusal = 1;  ///< seconds that a refusal takes
constexpr double kLockWait = 2;        ///< for which a writer waits for its predecessor
constexpr int kRefusals = 5;           ///< a shared machine may stop one of them for a moment

double seconds_on(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Returns how many times as long as alone a thread takes on this machine just now.
double slowdown() {
  const double begin = seconds_on(CLOCK_MONOTONIC), cpu = seconds_on(CLOCK_THREAD_CPUTIME_ID);
  double now = begin;
  while (now < begin + 0.2) now = seconds_on(CLOCK_MONOTONIC);
  return std::max(1.0, (now - begin) / (seconds_on(CLOCK_THREAD_CPUTIME_ID) - cpu));
}

/// Returns the CPU seconds of all children that have ended.
double cpu_of_children() {
  rusage use{};
  getrusage(RUSAGE_CHILDREN, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

class RefusalTime : public ProgramTest {
 protected:
  /// Expects a refusal that takes less than kLongestRefusal besides `waits`, in seconds. Time in
  /// which the machine had no core for the program does not count: that of its main thread is
  /// measured, that of the others follows from the slowdown of what they compute.
  void expect_quick(const Arguments& arguments, int code, const std::vector<std::string>& parts,
                    double waits = 0) {
    std::string times;
    for (int attempt = 0; attempt < kRefusals; ++attempt) {
      const double before = cpu_of_children();
      const Result result = run(arguments, user_);
      ASSERT_TRUE(refused(result, code, parts, false));
      const double took = result.wall_s - result.cpu_wait_s - waits;
      if (took < kLongestRefusal) return;
      const double cpu = cpu_of_children() - before, slow = slowdown();
      if (took - cpu * (slow - 1) < kLongestRefusal) return;
      times += fmt::format(" {:.2f} s with {:.2f} s of CPU, {:.1f} times as slow as alone;", took,
                           cpu, slow);
    }
    std::string command = "millrace";
    for (const std::string& word : arguments) command += " " + word;
    ADD_FAILURE() << command << ":" << times;
  }

  RunOptions user_;
};

TEST_F(RefusalTime, AMistakeIsRefusedWithinASecond) {
  expect_quick({"trian", "mnist-lenet"}, 2, {"unknown command"});
  expect_quick({"train", "mnist"}, 2, {"neither a recipe file nor a shipped recipe"});
  expect_quick({"train", "mnist-lenet", "num_workers=4"}, 2, {"unknown key num_workers"});
  expect_quick({"train", "mnist-lenet", "loader.workers=many"}, 2, {"expects auto"});
  expect_quick({"train", "mnist-lenet", "data.path=" + in("none").string()}, 3, {"none"});
  expect_quick({"report", in("none").string()}, 2, {"does not exist"});
  expect_quick({"sweep", "mnist-lenet", "data.path=" + in("none").string(), "loader.workers=0,1"},
               3, {"none"});
}

TEST_F(RefusalTime, WhatNeedsASignatureIsRefusedWithinASecond) {
  ASSERT_TRUE(succeeded(run({"sweep", "--command", "echo {a}", "a=1,2", "--repeats", "2", "--plan",
                             "--run", in("sweep").string()})));
  if (MILLRACE_HAS_TORCH != 0) {
    ASSERT_TRUE(succeeded(run(training("run", {"train.steps=2"}))));
  }
  user_.env["XDG_STATE_HOME"] = in("stranger").string();
  const std::string sweep = in("sweep").string(), path = in("run").string();
  for (const Arguments& deed : {Arguments{"sweep", "--resume", "--run", sweep},
                                {"sweep", sweep, "--block", "1"},
                                {"sweep", sweep, "--collect"}})
    expect_quick(deed, 2, {"not signed with your key"});
  if (MILLRACE_HAS_TORCH != 0)
    for (const Arguments& deed :
         {Arguments{"train", "--resume", "--run", path, "train.steps=4"}, {"eval", path}})
      expect_quick(deed, 2, {"not signed with your key"});
}

TEST_F(RefusalTime, ABusyDirectoryIsRefusedWithinASecondAfterTheWaitForItsLock) {
  Child holder(simulated("run", {"train.epochs=1000000", "simulated.update_ms=20"}));
  ASSERT_TRUE(holder.says("epoch 1/"));
  expect_quick(simulated("run"), 2, {"is in use"}, kLockWait);
  expect_quick({"sweep", "mnist-lenet", "data.path=" + data(), "loader.workers=0,1", "--run",
                in("run").string()},
               2, {"is in use"}, kLockWait);
  ASSERT_TRUE(holder.running());
}

}  // namespace
}  // namespace millrace::program_test
