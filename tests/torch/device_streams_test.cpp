// Steps by the async clock, and copies beside them, on a stand-in device: the CPU, with marks that
// are reached when the test says so.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/error.h"
#include "strategies/torch/device.h"
#include "strategies/torch/single.h"
#include "tests/torch/fake_device.h"
#include "tests/torch/steps_in_flight.h"
#include "tests/torch/training_run.h"

namespace millrace::train {
namespace {

using test::DeviceCalls;
using test::FakeStreams;
using test::Outcome;
using test::set;
using test::set_inflight;
using test::TrainingRun;

TrainingRun lenet_run(int inflight) {
  TrainingRun run;
  run.strategy.sample.size = {28, 28};
  set(run.strategy, "train.momentum", 0.9);
  set_inflight(run.strategy, inflight);
  run.training.epochs = 3;
  run.training.batch = 16;
  run.training.checkpoint_every = 2;
  run.training.schedule.lr = 0.02;
  run.samples = 90;
  run.held = std::max(1, inflight);
  return run;
}

Outcome train(TrainingRun run, DeviceCalls* calls = nullptr) {
  if (calls == nullptr) set_inflight(run.strategy, 0);
  Single single(run.strategy, calls != nullptr ? std::make_unique<FakeStreams>(*calls) : nullptr);
  test::fill_by_name(single.model());
  return test::train(single, run);
}

TEST(DeviceStreams, AQueueChangesNoNumber) {
  const Outcome expected = train(lenet_run(0));
  ASSERT_EQ(expected.losses.size(), 18u);
  for (const int inflight : {0, 1, 2, 4}) {
    DeviceCalls calls;
    const Outcome outcome = train(lenet_run(inflight), &calls);
    SCOPED_TRACE(inflight);
    ASSERT_EQ(outcome.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < expected.losses.size(); ++i)  // read as f32, not from a double
      EXPECT_NEAR(outcome.losses[i], expected.losses[i], 1e-6 * expected.losses[i]);
    EXPECT_EQ(outcome.hash, expected.hash);
    EXPECT_EQ(outcome.images, expected.images);
    EXPECT_EQ(outcome.result.evaluation.value().confusion,
              expected.result.evaluation.value().confusion);
    EXPECT_EQ(calls.joins, 18 + 3 * 6) << "a step and a batch of an evaluation each";
    EXPECT_EQ(calls.copies, 18 + 3 * 6)
        << "pixels and labels together; those of an evaluation stay";
    EXPECT_EQ(calls.answers, 3 * 6);
    EXPECT_EQ(calls.fences, 3 * 6);
    EXPECT_EQ(calls.unread_fences, 0);
    EXPECT_GE(calls.max_unread_fences, 4) << "an evaluation waits for each batch";
    EXPECT_GT(calls.clocks, 3);
    EXPECT_LE(calls.untimed, std::max(1, inflight) + 8) << "of batches in flight and evaluations";
    // Later steps place the same marks again, and the stand-in fails where that is too early.
    EXPECT_EQ(calls.marks, 4 * (inflight + 2)) << "one per place in a step";
    EXPECT_EQ(outcome.device.parts_steps, 18u - 2);
    EXPECT_EQ(outcome.device.parts.forward + outcome.device.parts.backward +
                  outcome.device.parts.step + outcome.device.setup_busy,
              outcome.device.busy);
  }
}

/// Returns the number of marks of a ring for `room` steps that were placed again too early, with
/// `inflight` of them in flight.
int early_marks(int inflight, int room) {
  testing::TestPartResultArray results;
  const testing::ScopedFakeTestPartResultReporter reporter(
      testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
  DeviceCalls calls;
  FakeStreams streams(calls);
  test::mark_steps(streams, inflight, room);
  return results.size();
}

TEST(DeviceStreams, ARingOfMarksIsLargeEnough) {
  for (const int inflight : {0, 1, 2, 5}) {
    EXPECT_EQ(early_marks(inflight, inflight), 0);
    // It then has one place, or one per step in flight, and the last step read loses its marks.
    EXPECT_GT(early_marks(inflight, std::max(inflight - 2, -1)), 0)
        << "the stand-in notices nothing";
  }
}

/// Returns the number of numbers that were likewise changed before they were copied.
int early_numbers(int inflight, int room) {
  testing::TestPartResultArray results;
  const testing::ScopedFakeTestPartResultReporter reporter(
      testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
  DeviceCalls calls;
  FakeStreams streams(calls);
  test::send_numbers(streams, inflight, room, torch::zeros({}));
  return results.size();
}

TEST(DeviceStreams, ARingOfNumbersIsLargeEnough) {
  for (const int inflight : {1, 2, 5}) EXPECT_EQ(early_numbers(inflight, inflight), 0);
  EXPECT_GT(early_numbers(5, 5 - 3), 0) << "the stand-in notices nothing";
}

TEST(DeviceStreams, MemoryIsWrittenOnceTheStepBeforeHasReadIt) {
  DeviceCalls calls;
  FakeStreams streams(calls);
  torch::Tensor there = torch::zeros({4});
  const auto allocated = streams.fence();
  streams.copy_into(there, torch::ones({4}), *allocated);
  const auto copy_again = [&](DeviceMark& read) {
    streams.copy_into(there, torch::ones({4}), read);
  };
  const auto early = streams.fence();
  EXPECT_NONFATAL_FAILURE(copy_again(*early), "may still read it");
  streams.on_side_stream([] {});  // a step
  const auto read = streams.fence();
  copy_again(*read);
}

TEST(DeviceStreams, UntimedMarksAreUsedAgain) {
  for (const int inflight : {0, 1, 4}) {
    SCOPED_TRACE(inflight);
    int made = 0;
    for (const int epochs : {2, 8}) {
      TrainingRun run = lenet_run(inflight);
      run.training.epochs = epochs;
      DeviceCalls calls;
      train(run, &calls);
      EXPECT_EQ(calls.joins + calls.fences, epochs * 18);
      if (made == 0) made = calls.untimed;
      EXPECT_EQ(calls.untimed, made) << "later steps and evaluations make new ones";
    }
  }
}

TEST(DeviceStreams, AMarkThatNobodyHasWaitedForIsNotPlacedAgain) {
  DeviceCalls calls;
  FakeStreams streams(calls);
  streams.fence()->wait();
  streams.join()->wait();
  EXPECT_EQ(calls.untimed, 1);
  streams.fence();  // dropped at once
  EXPECT_NONFATAL_FAILURE(streams.join(), "nobody has waited for");
  OwnedMark outlives;
  {
    FakeStreams others(calls);
    outlives = others.fence();
  }
  outlives->wait();
}

TEST(DeviceStreams, LossesThatComeLateStillNameTheirStep) {
  TrainingRun run = lenet_run(0);
  run.training.schedule.lr = 1e12;
  std::string expected;
  try {
    train(run);
  } catch (const RunError& error) {
    expected = error.what();
  }
  ASSERT_NE(expected.find("at step"), std::string::npos) << expected;
  set_inflight(run.strategy, 3);
  run.held = 3;
  DeviceCalls calls;
  try {
    train(run, &calls);
    FAIL() << "it has diverged";
  } catch (const RunError& error) {
    EXPECT_EQ(error.what(), expected);
  }
}

/// The device holds a batch until its copy is done, and the loader has memory for one more.
TEST(DeviceStreams, ASlotIsFreeOnceItIsCopied) {
  TrainingRun run = lenet_run(4);
  run.held = 1;
  DeviceCalls calls;
  const Outcome outcome = train(run, &calls);
  EXPECT_EQ(outcome.losses.size(), 18u);
}

TEST(DeviceStreams, BatchNormsThatAreCountedTogetherHaveTheSameCounts) {
  TrainingRun run = lenet_run(2);
  set(run.strategy, "model.name", "vgg_cifar");
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {32, 32};
  set(run.strategy, "train.momentum", 0);
  run.training.epochs = 1;
  run.training.batch = 2;
  run.training.schedule = {};
  run.samples = 4;
  std::vector<Outcome> outcomes;
  for (const bool together : {false, true}) {
    DeviceCalls calls;
    Single single(run.strategy, std::make_unique<FakeStreams>(calls));
    test::fill_by_name(single.model());
    if (together) single.model().count_together();
    outcomes.push_back(test::train(single, run));
    int counted = 0;
    for (const auto& buffer : single.model().named_buffers()) {
      if (!buffer.key().ends_with("num_batches_tracked")) continue;
      ++counted;
      EXPECT_EQ(buffer.value().item<std::int64_t>(), 2)
          << buffer.key() << ": evaluations count none";
    }
    EXPECT_GT(counted, 2);
  }
  EXPECT_EQ(outcomes[0].hash, outcomes[1].hash);
  EXPECT_EQ(outcomes[0].losses, outcomes[1].losses);
}

TEST(DeviceStreams, TheCpuHasNone) { EXPECT_EQ(make_device_streams(torch::kCPU), nullptr); }

}  // namespace
}  // namespace millrace::train
