// Run directories: atomic files, one writer at a time, and moved folders.
#include "study/records/run_directory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "base/atomic_file.h"
#include "millrace/error.h"
#include "strategies/trainer/checkpoint.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

class RunDirectoryTest : public testing::Test {
 protected:
  RunDirectoryTest()
      : base_(fs::temp_directory_path() / ("run_directory_test_" + std::to_string(::getpid()))) {
    fs::create_directories(base_);
  }
  ~RunDirectoryTest() override { fs::remove_all(base_); }
  static std::string text(const fs::path& file) {
    std::ostringstream out;
    out << std::ifstream(file).rdbuf();
    return out.str();
  }
  fs::path base_;
};

TEST_F(RunDirectoryTest, AnEarlierRunIsMovedAside) {
  for (int i = 0; i < 3; ++i) RunDirectory(base_ / "run", "seed = " + std::to_string(i) + "\n");
  EXPECT_EQ(text(base_ / "run/config.toml"), "seed = 2\n");
  EXPECT_EQ(text(base_ / "run.1/config.toml"), "seed = 0\n");
  EXPECT_EQ(text(base_ / "run.2/config.toml"), "seed = 1\n");
}

TEST_F(RunDirectoryTest, ARunKilledBeforeItsFirstFileIsNotInTheWay) {
  fs::create_directories(base_ / "run");
  std::ofstream(base_ / "run/config.toml.tmp-1234") << "seed";
  EXPECT_EQ(RunDirectory(base_ / "run", "seed = 1\n").moved_aside(), "");
  EXPECT_EQ(text(base_ / "run/config.toml"), "seed = 1\n");
  EXPECT_FALSE(fs::exists(base_ / "run/config.toml.tmp-1234"));
}

TEST_F(RunDirectoryTest, WhatKilledWritersHaveLeftIsRemoved) {
  { const RunDirectory first(base_ / "run", "seed = 1\n"); }
  const fs::path run = base_ / "run";
  fs::create_directories(run / "checkpoints/step-3");
  fs::create_directories(run / "checkpoints/step-4.tmp");
  std::ofstream(run / "checkpoints/step-4.tmp/model.safetensors") << "half";
  fs::create_symlink("step-4", run / "checkpoints/last.tmp");
  std::ofstream(run / "summary.json.tmp-1234") << "half";
  std::ofstream(run / "notes.tmp-draft") << "a person's";
  base::AtomicFile going_on(run / "report.html");
  const RunDirectory resumed = RunDirectory::resume(run, "seed = 1\n", 0, false, RunLock(run));
  EXPECT_TRUE(fs::exists(run / "checkpoints/step-3"));
  EXPECT_FALSE(fs::exists(run / "checkpoints/step-4.tmp"));
  EXPECT_FALSE(fs::is_symlink(run / "checkpoints/last.tmp"));
  EXPECT_FALSE(fs::exists(run / "summary.json.tmp-1234"));
  EXPECT_TRUE(fs::exists(run / "notes.tmp-draft"));
  EXPECT_NO_THROW(going_on.commit()) << "it was still being written";
}

TEST_F(RunDirectoryTest, OneWriterAtATime) {
  std::optional<RunDirectory> first(std::in_place, base_ / "run", "seed = 1\n");
  try {
    RunDirectory(base_ / "run", "seed = 2\n");
    ADD_FAILURE() << "two runs in one directory";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("pid " + std::to_string(::getpid()) + " on host "),
              std::string::npos)
        << error.what();
    EXPECT_NE(error.hint(), "");
  }
  EXPECT_EQ(text(base_ / "run/config.toml"), "seed = 1\n");
  EXPECT_FALSE(fs::exists(base_ / "run.1"));
  first.reset();
  EXPECT_NO_THROW(RunDirectory(base_ / "run", "seed = 2\n"));
}

TEST_F(RunDirectoryTest, OnlyASharedLockOutlivesItsOwnerInAChild) {
  for (const bool shared : {false, true}) {
    std::optional<RunLock> lock(base_);
    if (shared) lock->share_with_children();
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sleep", "sleep", "60", nullptr);
      _exit(127);
    }
    // The child has become another program when its name has changed.
    const std::string name = "/proc/" + std::to_string(child) + "/comm";
    while (text(name) != "sleep\n") usleep(1000);
    lock.reset();
    if (shared) {
      EXPECT_THROW(RunLock(base_, std::chrono::milliseconds(0)), UsageError);
    } else {
      EXPECT_NO_THROW(RunLock(base_, std::chrono::milliseconds(0)));
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_NO_THROW(RunLock{base_});
  }
}

TEST_F(RunDirectoryTest, ALockWhoseFolderWasMovedAwayIsNoLock) {
  fs::create_directories(base_ / "run");
  std::optional<RunLock> old(base_ / "run");
  std::atomic<bool> seen{false};
  // One that waits for the old lock finds the new folder's.
  std::thread mover([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fs::rename(base_ / "run", base_ / "run.1");
    fs::create_directories(base_ / "run");
    const RunLock fresh(base_ / "run");
    old.reset();
    while (!seen) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_THROW(RunLock(base_ / "run", std::chrono::milliseconds(800)), UsageError);
  seen = true;
  mover.join();
}

TEST_F(RunDirectoryTest, SomethingElseIsLeftAlone) {
  fs::create_directories(base_ / "thesis");
  std::ofstream(base_ / "thesis/chapter1.tex") << "x";
  EXPECT_THROW(RunDirectory(base_ / "thesis", ""), UsageError);
  EXPECT_THROW(RunDirectory(base_ / "thesis/chapter1.tex", ""), UsageError);
  EXPECT_TRUE(fs::exists(base_ / "thesis/chapter1.tex"));
}

TEST_F(RunDirectoryTest, RowsHaveAColumnASpan) {
  RunDirectory directory(base_ / "run/", "");
  measure::StepRecord record{1, 1, 64, 0.5, {}};
  directory.step(record);
  record.loss.reset();
  directory.step(record);
  directory.close();
  directory.summary({{"a", 1}});
  std::ifstream in(base_ / "run/steps.csv");
  std::string header, first, second;
  std::getline(in, header);
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_EQ(header.substr(0, 53), "epoch,step,load_s,update_s,other_s,images,loss,setup,");
  EXPECT_NE(first.find(",64,0.5,"), std::string::npos);
  EXPECT_NE(second.find(",64,,"), std::string::npos);
  EXPECT_EQ(std::count(header.begin(), header.end(), ','),
            std::count(second.begin(), second.end(), ','));
}

TEST_F(RunDirectoryTest, AFileThatCannotBeCompletedDoesNotAppear) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(write_file(base_ / "big", std::string(2000, 'x')), RunError);
  const auto fill = [](const fs::path& folder) {
    write_file(folder / "model.safetensors", std::string(2000, 'x'));
  };
  EXPECT_THROW(train::write_checkpoint(base_, 7, {}, fill), RunError);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(fs::exists(base_ / "big"));
  EXPECT_FALSE(fs::exists(base_ / "big.tmp"));
  EXPECT_TRUE(fs::is_empty(base_ / "checkpoints"));
}

}  // namespace
}  // namespace millrace::study
