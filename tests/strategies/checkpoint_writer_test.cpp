// Checkpoints written beside the training: one at a time, every error is thrown once, steps do not
// wait for a slow disk, and nothing is lost at the end.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "millrace/error.h"
#include "strategies/trainer/checkpoint.h"
#include "tests/strategies/simulated_run.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// Long enough for any machine; a test that needs it fails.
constexpr auto kLongEnough = 20s;

/// Waits until `reached` returns true. Returns whether it did.
template <class Reached>
bool comes_true(const Reached& reached) {
  const auto deadline = std::chrono::steady_clock::now() + kLongEnough;
  while (!reached()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

TEST(CheckpointWriter, RunsOneWriteAfterTheOther) {
  std::string order;
  CheckpointWriter writer;
  writer.wait();
  for (const char letter : {'a', 'b', 'c'}) {
    writer.wait();
    writer.start([&order, letter] { order += letter; });
  }
  writer.wait();
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(writer.writes(), 3u);
  EXPECT_GT(writer.seconds(), 0);
}

TEST(CheckpointWriter, ThrowsAnErrorOnce) {
  CheckpointWriter writer;
  const auto fail = [] { throw RunError("the disk is full"); };
  writer.start(fail);
  EXPECT_THROW(writer.wait(), RunError);
  writer.wait();
  writer.check();
  writer.start(fail);
  EXPECT_TRUE(comes_true([&] {
    try {
      writer.check();
    } catch (const RunError&) {
      return true;
    }
    return false;
  }));
  writer.wait();
  EXPECT_EQ(writer.writes(), 0u);
  writer.start([] {});
  writer.wait();
  EXPECT_EQ(writer.writes(), 1u);
}

TEST(CheckpointWriter, LooksWithoutWaiting) {
  std::atomic<bool> go_on{false};
  CheckpointWriter writer;
  writer.start([&] { comes_true([&] { return go_on.load(); }); });
  writer.check();  // would wait for what comes after it
  go_on = true;
  writer.wait();
  EXPECT_EQ(writer.writes(), 1u);
}

TEST(CheckpointWriter, CompletesItsWriteBeforeItGoes) {
  bool done = false;
  {
    CheckpointWriter writer;
    writer.start([&done] {
      std::this_thread::sleep_for(20ms);
      done = true;
    });
  }
  EXPECT_TRUE(done);
}

/// Another process that resumes at any moment finds a whole checkpoint.
TEST(CheckpointWriter, LeavesAWholeCheckpointAtAnyMoment) {
  const fs::path run =
      fs::temp_directory_path() / ("checkpoint_writer_test_" + std::to_string(::getpid()));
  fs::create_directories(run);
  std::atomic<bool> ended{false};
  int found = 0;
  std::thread other([&] {
    do {
      const fs::path last = last_checkpoint(run);
      if (last.empty()) continue;
      std::ifstream in(last / "model.safetensors");
      std::string text;
      // Between the two calls the folder may have been replaced by newer ones and removed.
      if (!(in >> text)) continue;
      EXPECT_EQ(text, last.filename().string() + "|");
      ++found;
    } while (!ended.load());
  });
  CheckpointWriter writer;
  for (std::uint64_t step = 1; step <= 60; ++step) {
    writer.wait();
    writer.start([&run, step] {
      write_checkpoint(run, step, {.keep = 5}, [step](const fs::path& folder) {
        std::ofstream out(folder / "model.safetensors");
        out << "step-" << step << std::flush << "|";
      });
    });
  }
  writer.wait();
  ended = true;
  other.join();
  EXPECT_GT(found, 0);
  EXPECT_EQ(last_checkpoint(run), fs::canonical(run / "checkpoints/step-60"));
  fs::remove_all(run);
}

TrainOptions every(std::uint64_t steps) {
  TrainOptions options;
  options.checkpoint_every = steps;
  return options;
}

TEST(CheckpointsBesideTraining, StepsDoNotWaitForASlowDisk) {
  constexpr std::uint64_t kSteps = 10;
  CheckpointWriter writer;
  std::atomic<std::uint64_t> step{0};
  std::vector<std::uint64_t> meanwhile;  // steps while a write went on
  Recorded observer;
  observer.on_progress = [&](const TrainProgress& now) {
    writer.check();
    step = now.step;
  };
  observer.on_checkpoint = [&](const Position& position) {
    writer.wait();
    writer.start([&, at = position.steps] {  // a disk that takes as long as three steps
      comes_true([&] { return step.load() >= std::min(at + 3, kSteps); });
      meanwhile.push_back(step.load() - at);
    });
  };
  observer.on_finish = [&] { writer.wait(); };
  const Outcome outcome = run(every(4), 0, 4 * kSteps, nullptr, {}, observer);
  expect_conserved(outcome);
  EXPECT_EQ(outcome.result.steps, kSteps);
  ASSERT_EQ(meanwhile.size(), 3u) << "after steps 4, 8 and 10, and none is lost at the end";
  EXPECT_GE(meanwhile[0], 3u);
  EXPECT_EQ(meanwhile[1], 2u) << "the epoch ended";
  EXPECT_EQ(meanwhile[2], 0u) << "the run ended";
  EXPECT_EQ(writer.writes(), 3u);
}

TEST(CheckpointsBesideTraining, TheWaitForADiskIsInTheCheckpointSpan) {
  CheckpointWriter writer;
  Recorded observer;
  observer.on_checkpoint = [&](const Position&) {
    writer.wait();
    writer.start([] { std::this_thread::sleep_for(30ms); });
  };
  observer.on_finish = [&] { writer.wait(); };
  const Outcome outcome = run(every(1), 0, 24, nullptr, {}, observer);  // 6 steps
  expect_conserved(outcome);
  // Six writes, and each but the first is waited for by the next or by the end.
  EXPECT_GE(outcome.seconds(measure::Span::checkpoint), 6 * 0.030 - 0.020);
}

TEST(CheckpointsBesideTraining, AFailedWriteEndsTheRunAtAStep) {
  constexpr std::uint64_t kSteps = 2000;
  CheckpointWriter writer;
  std::uint64_t steps = 0;
  std::size_t epochs = 0;
  Recorded observer;
  observer.on_progress = [&](const TrainProgress& now) {
    writer.check();
    steps = now.step;
    epochs = now.epoch;
  };
  observer.on_checkpoint = [&](const Position&) {
    writer.wait();
    writer.start([] { throw RunError("the disk is full"); });
  };
  observer.on_finish = [&] { writer.wait(); };
  try {
    run(every(5), 1, 4 * kSteps, nullptr, {}, observer);
    FAIL() << "nobody has noticed";
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(), "the disk is full");
  }
  EXPECT_GE(steps, 5u);
  EXPECT_LT(steps, kSteps);
  EXPECT_EQ(epochs, 1u);
}

TEST(CheckpointsBesideTraining, AFailedStepLetsTheWriteEndAndIsTheErrorToReport) {
  for (const bool both : {false, true}) {
    CheckpointWriter writer;
    bool done = false;
    Recorded observer;
    observer.on_progress = [&](const TrainProgress& now) {
      if (now.step == 6) throw RunError("the loss is NaN");
    };
    observer.on_checkpoint = [&](const Position&) {
      writer.start([&] {
        std::this_thread::sleep_for(30ms);
        done = true;
        if (both) throw RunError("the disk is full");
      });
    };
    observer.on_finish = [&] { writer.wait(); };
    try {
      run(every(5), 0, 40, nullptr, {}, observer);
      FAIL() << "nobody has noticed";
    } catch (const RunError& error) {
      EXPECT_STREQ(error.what(), "the loss is NaN");
    }
    EXPECT_TRUE(done) << "a checkpoint that was asked for is lost";
  }
}

}  // namespace
}  // namespace millrace::train
