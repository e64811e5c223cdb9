// Checkpoint folders: they appear whole, `last` and `best` point at the right ones, old ones are
// removed, and after a kill at any moment the newest complete one is found.
#include "strategies/trainer/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include "millrace/error.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;

std::string text(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

class Checkpoints : public testing::Test {
 protected:
  Checkpoints()
      : run_(fs::temp_directory_path() / ("checkpoint_test_" + std::to_string(::getpid()))),
        folder_(run_ / "checkpoints") {
    fs::create_directories(run_);
  }
  ~Checkpoints() override { fs::remove_all(run_); }

  /// Writes a checkpoint whose weights are `content`.
  fs::path write(std::uint64_t step, const CheckpointOptions& options = {},
                 const std::string& content = "weights") {
    return write_checkpoint(run_, step, options, [&](const fs::path& folder) {
      std::ofstream(folder / "model.safetensors") << content;
    });
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      found.insert(entry.path().filename().string());
    return found;
  }
  std::string link(const char* name) const { return fs::read_symlink(folder_ / name).string(); }

  fs::path run_, folder_;
};

using Names = std::set<std::string>;

TEST_F(Checkpoints, TheNewestStayAndTheBestBesidesThem) {
  EXPECT_EQ(last_checkpoint(run_), fs::path());
  EXPECT_EQ(write(5, {.best = true}), folder_ / "step-5");
  EXPECT_EQ(link("last"), "step-5");
  EXPECT_EQ(link("best"), "step-5");
  write(9);
  write(10);  // compared as a number, it comes after 9
  write(100);
  EXPECT_EQ(names(), (Names{"step-5", "step-10", "step-100", "last", "best"}));
  EXPECT_EQ(link("last"), "step-100");
  EXPECT_EQ(link("best"), "step-5");
  write(101, {.best = true, .keep = 1});
  EXPECT_EQ(names(), (Names{"step-101", "last", "best"}));
  EXPECT_EQ(link("best"), "step-101");
  EXPECT_EQ(last_checkpoint(run_), fs::canonical(folder_ / "step-101"));
}

TEST_F(Checkpoints, WhatIsNotACheckpointStays) {
  for (const char* name : {"step-", "step-1x", "step-x", "notes"})
    fs::create_directories(folder_ / name);
  for (const std::uint64_t step : {2u, 3u, 4u}) write(step, {.keep = 1});
  EXPECT_EQ(names(), (Names{"step-", "step-1x", "step-x", "notes", "step-4", "last"}));
}

TEST_F(Checkpoints, WhatCannotBeCompletedLeavesTheOldOne) {
  write(3, {.best = true}, "three");
  const auto fails = [](const fs::path& folder) {
    std::ofstream(folder / "model.safetensors") << "half";
    throw RunError("the disk is full");
  };
  for (const std::uint64_t step : {3u, 4u}) {
    EXPECT_THROW(write_checkpoint(run_, step, {.best = true}, fails), RunError);
    EXPECT_EQ(names(), (Names{"step-3", "last", "best"}));
    EXPECT_EQ(link("last"), "step-3");
    EXPECT_EQ(text(find_weights(run_)), "three");
  }
}

TEST_F(Checkpoints, LeftoversOfAKillAreReplaced) {
  fs::create_directories(folder_ / "step-7.tmp");
  std::ofstream(folder_ / "step-7.tmp/rubbish") << "half";
  fs::create_symlink("step-6", folder_ / "last.tmp");
  write(7);
  EXPECT_EQ(names(), (Names{"step-7", "last"}));
  EXPECT_FALSE(fs::exists(folder_ / "step-7/rubbish"));
}

TEST_F(Checkpoints, TheSameStepAgainTakesThePlace) {
  write(7, {}, "first");
  write(7, {}, "second");
  EXPECT_EQ(names(), (Names{"step-7", "last"}));
  EXPECT_EQ(text(folder_ / "last/model.safetensors"), "second");
}

TEST_F(Checkpoints, ADamagedLastIsTheNewestWholeOne) {
  for (const std::uint64_t step : {9u, 10u}) write(step);
  fs::create_directories(folder_ / "step-11.tmp");
  fs::remove(folder_ / "last");
  EXPECT_EQ(last_checkpoint(run_), fs::canonical(folder_ / "step-10")) << "the link is gone";
  fs::create_symlink("step-11", folder_ / "last");
  EXPECT_EQ(last_checkpoint(run_), fs::canonical(folder_ / "step-10")) << "it leads nowhere";
  fs::remove_all(folder_ / "step-9");
  fs::remove_all(folder_ / "step-10");
  EXPECT_EQ(last_checkpoint(run_), fs::path());
}

TEST_F(Checkpoints, AveragesAreTheWeightsWhereTheyAreKept) {
  write_checkpoint(run_, 1, {}, [](const fs::path& folder) {
    std::ofstream(folder / "model.safetensors") << "model";
    std::ofstream(folder / "ema.safetensors") << "averages";
  });
  EXPECT_EQ(text(find_weights(run_)), "averages");
  EXPECT_EQ(text(find_weights(folder_ / "step-1")), "averages");
  EXPECT_EQ(text(find_weights(folder_ / "step-1/model.safetensors")), "model");
  write(2, {}, "newer");
  EXPECT_EQ(text(find_weights(run_)), "newer");
  EXPECT_THROW(find_weights(run_ / "nothing"), DataError);
  fs::create_directories(run_ / "empty");
  EXPECT_THROW(find_weights(run_ / "empty"), DataError);
}

TEST_F(Checkpoints, TheConfigLiesAboveThem) {
  write(1);
  EXPECT_THROW(find_config(folder_ / "last"), DataError);
  std::ofstream(run_ / "config.toml") << "";
  for (const fs::path& what : {run_, folder_ / "last", folder_ / "step-1/model.safetensors"})
    EXPECT_EQ(find_config(what), fs::canonical(run_ / "config.toml"));
}

}  // namespace
}  // namespace millrace::train
