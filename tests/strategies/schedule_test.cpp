// Learning rates: equal to torch.optim.lr_scheduler's, step by step
// (tests/golden/make_schedule.py), and invalid options are rejected.
#include "strategies/trainer/schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "millrace/error.h"

namespace millrace::train {
namespace {

using nlohmann::json;

const json& golden() {
  static const json all = [] {
    std::ifstream in(MILLRACE_GOLDEN "/schedule.json");
    return json::parse(in);
  }();
  return all;
}

class GoldenSchedule : public testing::TestWithParam<std::size_t> {};

TEST_P(GoldenSchedule, FollowsPyTorch) {
  const json& one = golden()["cases"][GetParam()];
  ScheduleOptions options;
  options.name = one["name"];
  options.lr = golden()["lr"];
  options.warmup = one.value("warmup", options.warmup);
  options.warmup_start = one.value("warmup_start", options.warmup_start);
  options.step_epochs = one.value("step_epochs", options.step_epochs);
  options.milestones = one.value("milestones", options.milestones);
  options.gamma = one.value("gamma", options.gamma);
  options.min_lr = one.value("min_lr", options.min_lr);
  const std::uint64_t per_epoch = one["per_epoch"];
  const std::uint64_t updates = one["epochs"].get<std::uint64_t>() * per_epoch;
  const Schedule schedule(options, updates, per_epoch);
  ASSERT_EQ(one["rates"].size(), updates);
  for (std::uint64_t update = 0; update < updates; ++update) {
    const double expected = one["rates"][update];
    // PyTorch multiplies from step to step; ours is the closed form.
    EXPECT_NEAR(schedule.at(update), expected, 1e-12 * options.lr) << "update " << update;
  }
}

std::string name_of_case(const testing::TestParamInfo<std::size_t>& info) {
  const json& one = golden()["cases"][info.param];
  return std::to_string(info.param) + "_" + one["name"].get<std::string>() +
         (one.contains("warmup") ? "_warmup" : "");
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenSchedule,
                         testing::Range(std::size_t{0}, golden()["cases"].size()), name_of_case);

TEST(Schedule, BeyondTheRunItKeepsTheLastRate) {
  for (const char* name : {"constant", "cosine", "onecycle"}) {
    ScheduleOptions options;
    options.name = name;
    const Schedule schedule(options, 10, 5);
    EXPECT_DOUBLE_EQ(schedule.at(1000), schedule.at(name == std::string("cosine") ? 10 : 9));
  }
}

/// Returns the message for options of `updates` optimizer steps, 10 per epoch, modified by
/// `change`.
template <class Change>
std::string refusal(const Change& change, std::uint64_t updates = 100) {
  ScheduleOptions options;
  change(options);
  try {
    const Schedule schedule(options, updates, 10);
    return "not refused";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Schedule, RefusesWhatContradictsItself) {
  using Options = ScheduleOptions;
  EXPECT_EQ(refusal([](Options& o) { o.name = "onecycle", o.warmup = 1; }),
            "train.schedule=onecycle has a warm-up of its own");
  EXPECT_EQ(refusal([](Options& o) { o.name = "multistep"; }),
            "train.schedule=multistep needs the epochs at which it steps");
  EXPECT_EQ(refusal([](Options& o) {
              o.name = "multistep", o.milestones = {30, 20};
            }),
            "train.milestones must increase");
  EXPECT_EQ(refusal([](Options& o) { o.warmup = 10; }),
            "train.warmup takes 100 optimizer steps, the run has 100");
  EXPECT_EQ(refusal([](Options& o) { o.warmup = 9.9; }), "not refused");
  EXPECT_EQ(refusal([](Options& o) { o.name = "cosine", o.lr = 0.1, o.min_lr = 0.2; }),
            "train.min_lr is above train.lr");
  EXPECT_EQ(refusal([](Options& o) { o.name = "onecycle"; }, 1), "not refused");
}

}  // namespace
}  // namespace millrace::train
