// Optimizers, losses, accumulation, averages and batch norm, step by step as in PyTorch (contract
// Faithful training; tests/golden/make_training.py). amp_test.cpp tests mixed precision.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "strategies/torch/single.h"
#include "tests/torch/golden.h"
#include "tests/torch/training_run.h"

namespace millrace::train {
namespace {

using test::set;

using nlohmann::json;

const json& golden() {
  static const json all = test::read_golden("training.json");
  return all;
}

test::TrainingRun run_of(const json& one) {
  test::TrainingRun run;
  StrategyOptions& to = run.strategy;
  const std::string model = one["model"];
  const std::string optimizer = one.value("optimizer", "sgd");
  set(to, "model.name", model);
  set(to, "model.variant", one.value("variant", "imagenet"));
  if (model == "vgg_cifar") set(to, "model.dropout", 0);
  to.sample.channels = one["channels"];
  to.sample.size = {one["side"], one["side"]};
  to.classes = golden()["classes"];
  set(to, "train.optimizer", optimizer);
  set(to, "train.momentum", one.value("momentum", 0.0));
  set(to, "train.nesterov", one.value("nesterov", false));
  set(to, "train.betas", std::vector<double>{one.value("beta1", 0.9), one.value("beta2", 0.999)});
  set(to, "train.eps", one.value("eps", 1e-8));
  set(to, "train.weight_decay", one.value("weight_decay", 0.0));
  set(to, "train.clip", one.value("clip", 0.0));
  set(to, "train.label_smoothing", one.value("label_smoothing", 0.0));
  set(to, "train.ema", one.value("ema", 0.0));
  run.samples = one["samples"];
  run.training.epochs = one["epochs"];
  run.training.batch = one["batch"];
  run.training.accumulate = one.value("accumulate", 1);
  run.training.schedule.lr = one["lr"];
  run.training.eval_every = 0;  // only at the end
  return run;
}

class GoldenTraining : public ::testing::TestWithParam<std::size_t> {};

TEST_P(GoldenTraining, FollowsPyTorch) {
  const json& one = golden()["cases"][GetParam()];
  const test::TrainingRun run = run_of(one);
  Single single(run.strategy);
  test::fill_by_name(single.model());
  const test::Outcome outcome = test::train(single, run);

  constexpr double kTolerance = 1e-5;
  ASSERT_EQ(outcome.losses.size(), one["losses"].size());
  for (std::size_t i = 0; i < outcome.losses.size(); ++i) {
    const double expected = one["losses"][i];
    EXPECT_NEAR(outcome.losses[i], expected, kTolerance * expected) << "step " << i + 1;
  }
  const Evaluation& evaluation = outcome.result.evaluation.value();
  const double loss_sum = one["evaluation"]["loss_sum"];
  EXPECT_NEAR(evaluation.loss_sum, loss_sum, kTolerance * loss_sum);
  const double top1 = one["evaluation"]["top1"];
  EXPECT_NEAR(top1_of(evaluation) * one["samples"].get<double>(), top1, kTolerance * top1 + 1e-9);
}

std::string name_of_case(const ::testing::TestParamInfo<std::size_t>& info) {
  return golden()["cases"][info.param]["name"];
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenTraining,
                         ::testing::Range(std::size_t{0}, golden()["cases"].size()), name_of_case);

}  // namespace
}  // namespace millrace::train
