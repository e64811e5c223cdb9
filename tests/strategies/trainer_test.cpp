// The training loop without LibTorch: conservation of time (T1) and the simulated device.
#include "strategies/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "augment/plan.h"
#include "strategies/checkpoint.h"
#include "strategies/simulated.h"

namespace millrace {
namespace {

class Gray final : public Reader {
 public:
  explicit Gray(std::uint64_t count) {
    info_.count = count;
    info_.path = "memory";
    info_.split = "train";
    info_.size = {4, 4};
    info_.channels = 1;
    info_.classes.resize(2);
  }
  Sample read(std::uint64_t index, Buffer&) const override {
    return {pixels_, static_cast<std::int64_t>(index % 2)};
  }
  std::string name(std::uint64_t index) const override { return std::to_string(index); }

 private:
  std::vector<std::uint8_t> pixels_ = std::vector<std::uint8_t>(16 + kTailSlack);
};

struct Recorded final : TrainObserver {
  void step(const StepRecord& record) override { steps.push_back(record); }
  void epoch(const EpochRecord& record) override { epochs.push_back(record); }
  std::vector<StepRecord> steps;
  std::vector<EpochRecord> epochs;
};

struct Outcome {
  Recorded recorded;
  TrainResult result;
  SpanTicks spans{};
  double wall = 0;
  double seconds(Span span) const { return Clock::seconds(spans[static_cast<std::size_t>(span)]); }
};

Outcome run(TrainOptions options, double update_ms, std::uint64_t count = 40,
            const std::atomic<bool>* stop = nullptr) {
  static const std::atomic<bool> never{false};
  Outcome outcome;
  const auto reader = std::make_shared<Gray>(count);
  const auto plan = std::make_shared<Plan>(std::vector<OpSpec>{}, Source{{4, 4}, 1, false},
                                           OutputOptions{}, Resample::once);
  LoaderOptions loader_options;
  loader_options.workers = 1;
  loader_options.batch = 4;
  loader_options.epochs = options.epochs;
  const auto strategy = make_simulated(update_ms);
  const std::int64_t begin = Clock::steady_ns();
  SpanClock spans(Clock::now());
  Loader loader(reader, plan, loader_options);
  Trainer trainer(
      loader, *strategy, outcome.recorded, spans, options, [] { return nullptr; },
      stop != nullptr ? *stop : never);
  outcome.result = trainer.run();
  spans.enter(Span::teardown);
  outcome.wall = static_cast<double>(Clock::steady_ns() - begin) * 1e-9;
  trainer.close();
  outcome.spans = spans.ticks();
  return outcome;
}

TEST(Trainer, TimeIsConserved) {
  TrainOptions options;
  options.epochs = 2;
  const Outcome outcome = run(options, 1);
  const SpanSeconds total(outcome.spans);
  EXPECT_NEAR(total.total(), outcome.wall, 1e-3 * outcome.wall);
  EXPECT_EQ(outcome.result.steps, 20u);
  EXPECT_EQ(outcome.result.images, 80u);
  ASSERT_EQ(outcome.recorded.steps.size(), 20u);
  SpanTicks sum{};
  for (const StepRecord& step : outcome.recorded.steps)
    for (std::size_t i = 0; i < kSpanCount; ++i) sum[i] += step.ticks[i];
  EXPECT_EQ(sum, outcome.spans) << "rows add up to the run, span by span, to the tick";
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(outcome.recorded.steps[i].step, i + 1);
  EXPECT_EQ(outcome.recorded.epochs.size(), 2u);
}

TEST(Trainer, PlantedDelaysLandInTheirSpans) {
  const auto planted = [](double TrainOptions::Delays::*where, double seconds) {
    TrainOptions options;
    options.delays.*where = seconds;
    return run(options, 0);
  };
  EXPECT_NEAR(planted(&TrainOptions::Delays::forward, 0.03).seconds(Span::forward), 0.3, 0.006);
  EXPECT_NEAR(planted(&TrainOptions::Delays::log, 0.03).seconds(Span::log), 0.3, 0.006);
  EXPECT_NEAR(planted(&TrainOptions::Delays::evaluate, 0.3).seconds(Span::evaluate), 0.3, 0.006);
  const Outcome next = planted(&TrainOptions::Delays::next, 0.03);
  EXPECT_NEAR(next.seconds(Span::load) + next.seconds(Span::first_batch), 0.3, 0.006);
}

TEST(Trainer, ASimulatedStepTakesItsTime) {
  const Outcome outcome = run({}, 5, 80);
  EXPECT_NEAR(SpanSeconds(outcome.spans).update / 20, 0.005, 0.0001);
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
  EXPECT_NEAR(SpanSeconds(outcome.spans).total(), outcome.wall, 1e-3 * outcome.wall + 1e-5);
}

}  // namespace
}  // namespace millrace
