// Two processes and one run directory: the second writer is rejected before it changes anything;
// readers are not.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class RunIsLocked : public ProgramTest {
 protected:
  /// Arguments of a run that only a signal ends. It leaves the cores to the others.
  Arguments endless(const std::string& name) {
    return simulated(name, {"train.epochs=1000000", "simulated.update_ms=5"});
  }
  Arguments endless_training(const std::string& name) {
    return training(name, {"train.epochs=1000000", "eval.every=1000000", "debug.next_ms=50"});
  }
  Arguments resumed(const std::string& name, const Arguments& more = {}) {
    return Arguments{"train", "--resume", "--run", in(name).string()} + more;
  }
  std::vector<std::string> naming(const std::string& name, const Child& holder) {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    return {in(name).string() + " is in use", "pid " + std::to_string(holder.pid()) + " on host ",
            host.data(), "--run DIR"};
  }
  /// Expects every step to have exactly one row.
  void expect_whole(const std::string& name) {
    const auto rows = lines_of(read_file(in(name) / "steps.csv"));
    ASSERT_GT(rows.size(), 1u);
    for (std::size_t i = 1; i < rows.size(); ++i)
      ASSERT_EQ(rows[i].find(std::to_string(i), rows[i].find(',')), rows[i].find(',') + 1)
          << rows[i];
    EXPECT_EQ(rows.size() - 1, summary(name)["steps"].get<std::size_t>());
  }
};

TEST_F(RunIsLocked, ASecondRunIsRefusedByTheHoldersName) {
  Child first(endless("run"));
  ASSERT_TRUE(first.says("epoch 1/"));
  EXPECT_TRUE(refused(run(simulated("run")), 2, naming("run", first)));
  EXPECT_TRUE(refused(run(simulated("run/")), 2, naming("run", first)));
  EXPECT_FALSE(fs::exists(in("run.1"))) << "the living run was moved away";
  ASSERT_TRUE(first.running());
  first.send(SIGINT);
  EXPECT_EQ(first.wait().exit_code, 130);
  expect_whole("run");
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  EXPECT_TRUE(fs::exists(in("run.1/summary.json")));
}

TEST_F(RunIsLocked, AProfileAndASweepAreRefusedToo) {
  Child first(endless("run"));
  ASSERT_TRUE(first.says("epoch 1/"));
  const Arguments into{"data.path=" + data(), "train.device=simulated", "--run",
                       in("run").string()};
  EXPECT_TRUE(refused(run(Arguments{"profile", "mnist-lenet"} + into), 2, naming("run", first)));
  EXPECT_TRUE(refused(run(Arguments{"sweep", "mnist-lenet", "loader.workers=0,1"} + into), 2,
                      naming("run", first)));
}

TEST_F(RunIsLocked, ASweepIsRefusedToARun) {
  Child sweep({"sweep", "mnist-lenet", "data.path=" + data(), "loader.workers=0,1",
               "train.device=simulated", "train.epochs=1000000", "--run", in("run").string()});
  ASSERT_TRUE(sweep.says("records in"));
  EXPECT_TRUE(refused(run(simulated("run")), 2, naming("run", sweep)));
  EXPECT_FALSE(fs::exists(in("run.1")));
}

TEST_F(RunIsLocked, ResumeBesideTheLivingOriginalIsRefusedAndReadersAreNot) {
  MILLRACE_NEEDS_TORCH();
  Child first(endless_training("run"));
  ASSERT_TRUE(first.says("epoch 2/"));
  EXPECT_TRUE(refused(run(resumed("run")), 2, naming("run", first)));
  EXPECT_TRUE(succeeded(run({"eval", in("run").string()})));
  EXPECT_TRUE(succeeded(run({"report", in("run").string(), "--md"})));
  ASSERT_TRUE(first.running());
  first.send(SIGKILL);
  first.wait();
  const std::size_t rows = lines_of(read_file(in("run") / "steps.csv")).size();
  ASSERT_TRUE(succeeded(run(resumed("run", {"train.steps=" + std::to_string(rows + 20)}))));
  expect_whole("run");
}

TEST_F(RunIsLocked, RanksAreLockedByTheFirst) {
  MILLRACE_NEEDS_TORCH();
  const auto launched = [](const Arguments& train) {
    return Arguments{"launch", "-n", "2", "--"} + train + Arguments{"train.strategy=ddp"};
  };
  Child first(launched(endless_training("run")));
  ASSERT_TRUE(first.says("epoch 1/"));
  const pid_t rank0 = children_of(first.pid()).at(0);
  for (const Arguments& second : {endless_training("run"), resumed("run")}) {
    const Result result = run(launched(second));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(count_of(result.err, "is in use: pid " + std::to_string(rank0)), 1u) << result.err;
    EXPECT_EQ(result.err.find("interrupted"), std::string::npos) << result.err;
  }
  EXPECT_TRUE(first.running());
}

TEST_F(RunIsLocked, RunsWithoutANameThatBeginTogetherEachGetTheirOwn) {
  RunOptions here;
  here.cwd = in(".");
  Arguments unnamed = simulated("unused");
  unnamed.resize(unnamed.size() - 2);  // drops --run DIR
  std::vector<std::unique_ptr<Child>> runs;
  for (int i = 0; i < 4; ++i) runs.push_back(std::make_unique<Child>(unnamed, here));
  for (const auto& one : runs) EXPECT_TRUE(succeeded(one->wait()));
  std::size_t whole = 0;
  for (const auto& entry : fs::directory_iterator(in("runs")))
    whole += fs::exists(entry.path() / "summary.json");
  EXPECT_EQ(whole, runs.size());
}

TEST_F(RunIsLocked, AFileSystemWithoutLocksIsRefused) {
  RunOptions options;
  options.no_locks = true;
  EXPECT_TRUE(refused(run(simulated("run"), options), 2,
                      {"run.lock cannot be locked", "No locks available", "file system"}));
  EXPECT_FALSE(fs::exists(in("run/config.toml")));
}

}  // namespace
}  // namespace millrace::program_test
