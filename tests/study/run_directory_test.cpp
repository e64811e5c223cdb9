#include "study/run_directory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "pipeline/error.h"
#include "strategies/checkpoint.h"

namespace millrace {
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
  EXPECT_EQ(RunDirectory(base_ / "run", "seed = 1\n").moved_aside(), base_ / "run.1");
  EXPECT_EQ(text(base_ / "run/config.toml"), "seed = 1\n");
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
  StepRecord record{1, 1, 64, 0.5, {}};
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
  EXPECT_THROW(write_checkpoint(base_, 7, {}, fill), RunError);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(fs::exists(base_ / "big"));
  EXPECT_FALSE(fs::exists(base_ / "big.tmp"));
  EXPECT_TRUE(fs::is_empty(base_ / "checkpoints"));
}

}  // namespace
}  // namespace millrace
