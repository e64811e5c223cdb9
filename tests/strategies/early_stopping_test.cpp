// Early stopping: what counts as an improvement, when the trainer ends, and that rank 0 decides.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "strategies/trainer/schedule.h"
#include "tests/strategies/simulated_run.h"

namespace millrace::train {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Returns an evaluation of 1000 samples.
Evaluation evaluation(double top1, double loss) {
  Evaluation result;
  result.images = 1000;
  result.loss_sum = 1000 * loss;
  result.samples = {1000};
  result.correct = {static_cast<std::uint64_t>(std::lround(1000 * top1))};
  return result;
}

/// Returns the state after one epoch per value.
EarlyStoppingState after(const std::vector<double>& values, const EarlyStoppingOptions& options) {
  EarlyStoppingState state;
  for (std::uint32_t i = 0; i < values.size(); ++i)
    state = with_epoch(
        state, options, i + 1,
        options.metric == "top1" ? evaluation(values[i], 1) : evaluation(0.5, values[i]));
  return state;
}

TEST(EarlyStopping, AnImprovementExceedsMinDelta) {
  const EarlyStoppingOptions top1{.metric = "top1", .patience = 2, .min_delta = 0.125};
  EXPECT_EQ(after({0.25, 0.375, 0.5}, top1).best_epoch, 3u) << "0.25 above the best, not 0.125";
  EXPECT_EQ(after({0.25, 0.375}, top1).best_epoch, 1u) << "equal to min_delta";
  const EarlyStoppingOptions loss{.metric = "test_loss", .patience = 2, .min_delta = 0.125};
  EXPECT_EQ(after({2, 1.5, 1.75}, loss).best_epoch, 2u);
  EXPECT_EQ(after({2, 1.875}, loss).best_epoch, 1u);
  EXPECT_EQ(after({0.5, 0.5}, {.metric = "top1"}).best_epoch, 1u) << "the same is no improvement";
}

TEST(EarlyStopping, PatienceCountsEvaluationsInARow) {
  const EarlyStoppingOptions options{.metric = "top1", .patience = 2};
  EXPECT_FALSE(is_exhausted(after({0.5, 0.4}, options), options));
  EXPECT_FALSE(is_exhausted(after({0.5, 0.4, 0.6, 0.5}, options), options));
  EXPECT_TRUE(is_exhausted(after({0.5, 0.4, 0.5}, options), options));
  EXPECT_FALSE(is_exhausted(after({0.5, 0.4, 0.5}, options), {.metric = "top1", .patience = 3}));
  EXPECT_FALSE(is_exhausted(after({0.5, 0.4, 0.5}, options), {.metric = "off", .patience = 2}));
}

TEST(EarlyStopping, WhatIsNoFiniteNumberIsNoImprovement) {
  const EarlyStoppingOptions options{.metric = "test_loss", .patience = 2};
  const EarlyStoppingState never = after({kNaN, INFINITY}, options);
  EXPECT_EQ(never.best_epoch, 0u);
  EXPECT_TRUE(is_exhausted(never, options));
  const EarlyStoppingState late = after({kNaN, 3, -INFINITY}, options);
  EXPECT_EQ(late.best_epoch, 2u);
  EXPECT_EQ(late.stale, 1u);
}

TEST(EarlyStopping, AnEpochCountsOnce) {
  const EarlyStoppingOptions options{.metric = "top1", .patience = 2};
  EarlyStoppingState state = after({0.5, 0.4}, options);
  state = with_epoch(state, options, 2, evaluation(0.4, 1));
  EXPECT_EQ(state.stale, 1u);
  EXPECT_EQ(state.last_epoch, 2u);
}

/// A model whose accuracy after each epoch is given.
class Scripted final : public Strategy {
 public:
  explicit Scripted(std::vector<double> top1) : top1_(std::move(top1)) {}
  void step(Batch batch, const StepContext& place, measure::SpanClock&) override {
    samples_ = batch.count();
    finished_.emplace_back().step = place.step;
  }
  std::vector<FinishedStep> take_finished() override { return std::exchange(finished_, {}); }
  std::int64_t last_samples() const override { return samples_; }
  double take_train_loss() override { return 1; }
  std::optional<Evaluation> evaluate(Loader& loader) override {
    Evaluation result = evaluation(top1_.at(evaluations++), 1);
    result.images = loader.samples_per_epoch();
    result.correct = {static_cast<std::uint64_t>(
        std::lround(static_cast<double>(result.images) * top1_.at(evaluations - 1)))};
    return result;
  }
  std::vector<std::string> gather(const std::string& mine) override {
    told.push_back(mine);
    return {rank_0.empty() ? mine : rank_0, mine};
  }
  Snapshot snapshot() override { return {}; }
  void restore(const std::filesystem::path&) override {}
  std::string parameters_hash() override { return {}; }
  std::uint64_t parameter_count() const override { return 1; }
  std::string device() const override { return "none"; }

  std::size_t evaluations = 0;
  std::vector<std::string> told;  ///< what this rank has sent
  std::string rank_0;             ///< what rank 0 sends; empty: what this rank sends

 private:
  std::vector<double> top1_;
  std::vector<FinishedStep> finished_;
  std::int64_t samples_ = 0;
};

TrainResult train(Scripted& strategy, const TrainOptions& options) {
  const auto reader = std::make_shared<Gray>(40);
  const auto plan = std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{{4, 4}, 1},
                                                    OutputOptions{}, Resample::once);
  LoaderOptions loader_options;
  loader_options.workers = 1;
  loader_options.batch = 4;
  loader_options.epochs = options.epochs;
  loader_options.first_batch = options.from.steps;
  Loader loader(reader, plan, loader_options);
  const auto evaluation_set = [&] {
    LoaderOptions once;
    once.workers = 1;
    once.batch = 40;
    return std::make_unique<Loader>(reader, plan, once);
  };
  Recorded recorded;
  measure::SpanClock spans(base::Clock::now());
  const std::atomic<bool> never{false};
  Trainer trainer(loader, strategy, recorded, spans, options, evaluation_set, never);
  trainer.run();
  trainer.close();
  EXPECT_EQ(recorded.steps.size(), trainer.result().steps - options.from.steps);
  return trainer.result();
}

TrainOptions stopping_options() {
  TrainOptions options;
  options.epochs = 20;
  options.batch = 4;
  options.stopping = {.metric = "top1", .patience = 2};
  return options;
}

TEST(EarlyStopping, EndsTheRunAfterTheEpochThatExhaustsPatience) {
  Scripted strategy({0.5, 0.6, 0.6, 0.55});
  const TrainResult result = train(strategy, stopping_options());
  EXPECT_TRUE(result.stopped_early);
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(result.epochs, 4u);
  EXPECT_EQ(result.steps, 40u);
  EXPECT_EQ(result.stopping.best_epoch, 2u);
  EXPECT_EQ(result.stopping.best, 0.6);
  EXPECT_EQ(strategy.evaluations, 4u);
  EXPECT_EQ(strategy.told, (std::vector<std::string>{"go on", "go on", "go on", "stop"}));
}

TEST(EarlyStopping, ANewBestEpochStartsThePatienceAgain) {
  Scripted strategy({0.5, 0.4, 0.6, 0.5, 0.7, 0.6, 0.6});
  EXPECT_EQ(train(strategy, stopping_options()).epochs, 7u);
}

TEST(EarlyStopping, CountsEvaluationsAndNotEpochs) {
  TrainOptions options = stopping_options();
  options.eval_every = 3;
  Scripted strategy({0.5, 0.5, 0.5});
  EXPECT_EQ(train(strategy, options).epochs, 9u);
}

TEST(EarlyStopping, RankZeroDecides) {
  Scripted early({0.5, 0.6, 0.7});
  early.rank_0 = "stop";
  EXPECT_EQ(train(early, stopping_options()).epochs, 1u);
  EXPECT_EQ(early.told, std::vector<std::string>{"go on"});
  Scripted late({0.5, 0.5, 0.5, 0.5});
  late.rank_0 = "go on";
  TrainOptions options = stopping_options();
  options.epochs = 4;
  EXPECT_EQ(train(late, options).epochs, 4u);
  EXPECT_EQ(late.told.back(), "stop");
}

TEST(EarlyStopping, ContinuesFromItsState) {
  TrainOptions options = stopping_options();
  options.from.steps = 30;
  options.from.stopping = {.best = 0.6, .best_epoch = 2, .last_epoch = 3, .stale = 1};
  Scripted strategy({0.6});
  const TrainResult result = train(strategy, options);
  EXPECT_EQ(result.epochs, 4u);
  EXPECT_EQ(result.stopping.best_epoch, 2u);
}

TEST(EarlyStopping, ARunThatHasStoppedEvaluatesOnceMoreAndEnds) {
  TrainOptions options = stopping_options();
  options.from.steps = 40;
  options.from.epoch_images = 40;
  options.from.evaluation_due = true;
  options.from.stopping = {.best = 0.6, .best_epoch = 2, .last_epoch = 4, .stale = 2};
  options.eval_every = 3;
  Scripted strategy({0.6});
  const TrainResult result = train(strategy, options);
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(result.steps, 40u);
  EXPECT_EQ(strategy.evaluations, 1u);
  EXPECT_EQ(result.stopping.stale, 2u);
  ASSERT_TRUE(result.evaluation.has_value());
}

}  // namespace
}  // namespace millrace::train
