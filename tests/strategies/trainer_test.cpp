// Training loop without LibTorch: contract Conservation of time, and the simulated device.
#include <gtest/gtest.h>

#include "tests/strategies/simulated_run.h"

namespace millrace::train {
namespace {

TEST(Trainer, TimeIsConserved) {
  TrainOptions options;
  options.epochs = 2;
  const Outcome outcome = run(options, 1);
  expect_conserved(outcome);
  EXPECT_EQ(outcome.result.steps, 20u);
  EXPECT_EQ(outcome.result.images, 80u);
  ASSERT_EQ(outcome.recorded.steps.size(), 20u);
  measure::SpanTicks sum{};
  for (const measure::StepRecord& step : outcome.recorded.steps)
    for (std::size_t i = 0; i < measure::kSpanCount; ++i) sum[i] += step.ticks[i];
  EXPECT_EQ(sum, outcome.spans) << "rows add up to the run, span by span, to the tick";
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(outcome.recorded.steps[i].step, i + 1);
  EXPECT_EQ(outcome.recorded.epochs.size(), 2u);
}

TEST(Trainer, EndsAfterSoManySteps) {
  TrainOptions options;
  options.epochs = 5;
  options.steps = 13;
  const Outcome outcome = run(options, 0);
  EXPECT_EQ(outcome.result.steps, 13u);
  EXPECT_FALSE(outcome.result.interrupted);
  EXPECT_EQ(outcome.recorded.steps.size(), 13u);
  EXPECT_EQ(outcome.recorded.epochs.size(), 2u);
}

TEST(Trainer, AStopEndsTheRunAndEveryTickStillCounts) {
  const std::atomic<bool> stop{true};
  const Outcome outcome = run({}, 0, 40, &stop);
  EXPECT_TRUE(outcome.result.interrupted);
  EXPECT_EQ(outcome.result.steps, 0u);
  expect_conserved(outcome);
}

}  // namespace
}  // namespace millrace::train
