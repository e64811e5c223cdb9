// Resuming a run directory: rows and lines after the checkpoint are removed, those before it must
// be there, at whatever moment the run was killed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "millrace/error.h"
#include "study/records/run_directory.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

std::string text(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

void append(const fs::path& file, const std::string& more) {
  std::ofstream(file, std::ios::app) << more;
}

/// Drops the last `bytes` of a file, as a kill in the middle of a write does.
void shorten(const fs::path& file, std::uintmax_t bytes) {
  fs::resize_file(file, fs::file_size(file) - bytes);
}

measure::StepRecord row(std::uint64_t step, double loss = 0.5) {
  return {.epoch = 1, .step = step, .images = 8, .loss = loss, .ticks = {}};
}

class Resume : public testing::Test {
 protected:
  Resume()
      : base_(fs::temp_directory_path() / ("resume_test_" + std::to_string(::getpid()))),
        run_(base_ / "run"),
        steps_(run_ / "steps.csv") {
    fs::create_directories(base_);
  }
  ~Resume() override { fs::remove_all(base_); }

  /// Makes a run of `steps` steps. The row of the last one, with loss 9, was open when it was
  /// killed.
  void killed_after(std::uint64_t steps) {
    RunDirectory directory(run_, "seed = 1\n");
    for (std::uint64_t step = 1; step < steps; ++step) directory.step(row(step));
    directory.open_step(row(steps, 9));
  }
  RunDirectory resume(std::uint64_t step, bool epoch_open = true) {
    return RunDirectory::resume(run_, "seed = 2\n", step, epoch_open, RunLock(run_));
  }
  /// Returns steps and losses of the rows: "1:0.5 2:0.5 ".
  static std::string rows(const fs::path& file) {
    std::istringstream in(text(file));
    std::string line, all;
    std::getline(in, line);
    EXPECT_EQ(line.substr(0, 11), "epoch,step,") << "the header comes first, once";
    while (std::getline(in, line)) {
      std::istringstream cells(line);
      std::string cell[7];
      for (std::string& one : cell) std::getline(cells, one, ',');
      EXPECT_EQ(cell[0], "1") << line;
      all += cell[1] + ":" + cell[6] + " ";
    }
    return all;
  }
  /// Returns the message that rejects resuming at `step`.
  std::string refusal(std::uint64_t step) {
    try {
      resume(step);
      return "not refused";
    } catch (const DataError& error) {
      return error.what();
    }
  }

  fs::path base_, run_, steps_;
};

TEST_F(Resume, RowsAfterTheCheckpointGoAndTheRunGoesOn) {
  killed_after(5);
  append(run_ / "summary.json", "{}");
  {
    RunDirectory directory = resume(3);
    EXPECT_FALSE(fs::exists(run_ / "summary.json"));
    EXPECT_EQ(text(run_ / "config.toml"), "seed = 2\n");
    directory.step(row(4, 0.25));
    directory.close();
  }
  EXPECT_EQ(rows(steps_), "1:0.5 2:0.5 3:0.5 4:0.25 ");
}

TEST_F(Resume, TheOpenRowTakesItsPlace) {
  killed_after(4);
  EXPECT_EQ(rows(steps_), "1:0.5 2:0.5 3:0.5 ");
  resume(4).step(row(5));
  EXPECT_EQ(rows(steps_), "1:0.5 2:0.5 3:0.5 4:9 5:0.5 ");
}

TEST_F(Resume, AFinalRowIsBetterThanTheOpenOne) {
  {
    RunDirectory directory(run_, "");
    directory.open_step(row(1, 9));
    directory.step(row(1));
    directory.step(row(2));
    directory.close();
  }
  resume(1).close();
  EXPECT_EQ(rows(steps_), "1:0.5 ");
}

TEST_F(Resume, RowsMayComeWhileAnOpenOneIsOnItsWayToTheDisk) {
  {
    RunDirectory directory(run_, "seed = 1\n");
    directory.step(row(1));
    directory.step(row(2));
    const auto rest = directory.begin_open_step(row(3, 9));
    EXPECT_EQ(rows(steps_), "1:0.5 2:0.5 ") << "a killed process has lost none of them";
    directory.step(row(3));
    directory.step(row(4));
    std::thread(rest).join();
    directory.begin_open_step(row(5, 8))();
    directory.step(row(5));
    const auto never = directory.begin_open_step(row(6, 7));
  }
  resume(5).close();
  EXPECT_EQ(rows(steps_), "1:0.5 2:0.5 3:0.5 4:0.5 5:0.5 ");
  resume(3).close();
  EXPECT_EQ(rows(steps_), "1:0.5 2:0.5 3:0.5 ") << "the checkpoint before is good as well";
}

TEST_F(Resume, HalfARowIsNoRow) {
  killed_after(3);
  append(steps_, "1,3,0.0");
  resume(3).close();
  EXPECT_EQ(rows(steps_), "1:0.5 2:0.5 3:9 ");
  append(steps_, "1,4,0.00000");  // and with a checkpoint older than that
  resume(2).close();
  EXPECT_EQ(rows(steps_), "1:0.5 2:0.5 ");
}

TEST_F(Resume, ItCanBeDoneAgainAndAgain) {
  killed_after(3);
  for (int i = 0; i < 3; ++i) resume(3).close();
  EXPECT_EQ(rows(steps_), "1:0.5 2:0.5 3:9 ");
}

TEST_F(Resume, WithoutACheckpointTheTableBeginsAgain) {
  killed_after(3);
  RunDirectory directory = resume(0);
  directory.step(row(1, 0.75));
  directory.close();
  EXPECT_EQ(rows(steps_), "1:0.75 ");
}

TEST_F(Resume, MissingRowsAreRefused) {
  killed_after(4);
  EXPECT_EQ(refusal(5),
            steps_.string() + ": the row of step 4 is missing, the checkpoint is of step 5");
  shorten(steps_, 1);  // the newline of row 3
  EXPECT_EQ(refusal(4),
            steps_.string() + ": the row of step 3 is missing, the checkpoint is of step 4");
  fs::remove(run_ / "steps.csv.open");
  EXPECT_EQ(refusal(3),
            steps_.string() + ": the row of step 3 is missing, the checkpoint is of step 3");
  EXPECT_EQ(refusal(2), "not refused");
  EXPECT_EQ(rows(steps_), "1:0.5 2:0.5 ");
}

TEST_F(Resume, ATableWithoutItsHeaderIsRefused) {
  killed_after(1);
  for (const char* content : {"", "epoch,st"}) {
    std::ofstream(steps_) << content;
    EXPECT_NE(refusal(1).find("the row of step 1 is missing"), std::string::npos) << content;
  }
  fs::remove(steps_);
  EXPECT_NE(refusal(1).find("the row of step 1 is missing"), std::string::npos);
}

TEST_F(Resume, LinesOfLaterStepsGo) {
  {
    RunDirectory directory(run_, "");
    for (std::uint64_t step = 1; step <= 6; ++step) directory.step(row(step));
    for (const int step : {2, 4, 6}) directory.epoch({{"epoch", step / 2}, {"step", step}});
    for (const int step : {1, 4, 5}) directory.quarantine({{"step", step}, {"sample", 10 * step}});
    directory.close();
  }
  const std::string metrics = text(run_ / "metrics.jsonl");
  append(run_ / "metrics.jsonl", "{\"epoch\": 4, \"st");  // killed while writing it
  append(run_ / "quarantine.jsonl", "{\"step\": 1");
  resume(6, /*epoch_open=*/false).close();
  EXPECT_EQ(text(run_ / "metrics.jsonl"), metrics);
  EXPECT_EQ(text(run_ / "quarantine.jsonl"),
            "{\"step\":1,\"sample\":10}\n{\"step\":4,\"sample\":40}\n{\"step\":5,\"sample\":50}\n");

  resume(4, /*epoch_open=*/false).close();
  EXPECT_EQ(text(run_ / "metrics.jsonl"), "{\"epoch\":1,\"step\":2}\n{\"epoch\":2,\"step\":4}\n");
  EXPECT_EQ(text(run_ / "quarantine.jsonl"),
            "{\"step\":1,\"sample\":10}\n{\"step\":4,\"sample\":40}\n");

  RunDirectory directory = resume(4, /*epoch_open=*/true);  // its line will be written again
  EXPECT_EQ(directory.quarantined(), 2u) << "the failures of the whole run are counted";
  EXPECT_EQ(text(run_ / "metrics.jsonl"), "{\"epoch\":1,\"step\":2}\n");
  directory.epoch({{"epoch", 2}, {"step", 4}});
  directory.quarantine({{"step", 5}});
  EXPECT_EQ(text(run_ / "metrics.jsonl"), "{\"epoch\":1,\"step\":2}\n{\"epoch\":2,\"step\":4}\n");
  EXPECT_EQ(text(run_ / "quarantine.jsonl"),
            "{\"step\":1,\"sample\":10}\n{\"step\":4,\"sample\":40}\n{\"step\":5}\n");
}

TEST_F(Resume, OtherRanksHaveFilesOfTheirOwn) {
  killed_after(4);
  const std::string first = text(steps_);
  {
    RunDirectory directory = RunDirectory::of_rank(run_, 2, 0);
    for (std::uint64_t step = 1; step <= 4; ++step) directory.step(row(step, 0.125));
    directory.quarantine({{"step", 3}});
    directory.quarantine({{"step", 4}});
    directory.open_step(row(5, 7));
  }
  const fs::path steps = run_ / "steps.rank2.csv";
  EXPECT_EQ(rows(steps), "1:0.125 2:0.125 3:0.125 4:0.125 ");
  RunDirectory::of_rank(run_, 2, 5).close();
  EXPECT_EQ(rows(steps), "1:0.125 2:0.125 3:0.125 4:0.125 5:7 ");
  RunDirectory::of_rank(run_, 2, 3).close();
  EXPECT_EQ(rows(steps), "1:0.125 2:0.125 3:0.125 ");
  EXPECT_EQ(text(run_ / "quarantine.rank2.jsonl"), "{\"step\":3}\n");
  EXPECT_THROW(RunDirectory::of_rank(run_, 2, 4 + 2), DataError);
  EXPECT_EQ(text(steps_), first) << "rank 0's are left alone";
  RunDirectory::of_rank(base_ / "other host/run", 1, 0).close();
  EXPECT_EQ(rows(base_ / "other host/run/steps.rank1.csv"), "");
}

}  // namespace
}  // namespace millrace::study
