// Updates with set-up steps kept apart.
#include "study/records/update_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace millrace::study {
namespace {

using measure::SetUp;

measure::StepRecord step(double update_ms, SetUp kind = SetUp::none) {
  measure::StepRecord record;
  record.set_up = kind;
  const base::Clock::Ticks half = base::Clock::ticks(update_ms * 0.5e-3);
  record.ticks[static_cast<std::size_t>(measure::Span::forward)] = half;
  record.ticks[static_cast<std::size_t>(measure::Span::device_wait)] = half;
  record.ticks[static_cast<std::size_t>(measure::Span::load)] = 1'000'000'000;  // is no update
  return record;
}

TEST(UpdateTimes, AStepThatSetsSomethingUpChangesNeitherMeanNorMedian) {
  UpdateTimes times;
  times.add(step(3000, SetUp::first));
  for (const double ms : {4, 1, 2, 5}) times.add(step(ms));
  times.add(step(70, SetUp::warm_up));
  times.add(step(80, SetUp::warm_up));
  EXPECT_NEAR(times.mean(), 3e-3, 1e-8);
  EXPECT_NEAR(times.median(), 3e-3, 1e-8);
  times.add(step(100));
  EXPECT_NEAR(times.median(), 4e-3, 1e-8);
  EXPECT_EQ(times.set_up().steps, 3u);
  EXPECT_NEAR(times.set_up().seconds, 3.15, 1e-6);
  EXPECT_NEAR(times.set_up().device_wait_s, 3.15 / 2, 1e-6);
  const auto records = set_up_records(times);
  EXPECT_EQ(records.size(), 2u);
  EXPECT_EQ(find(records, "warm_up")->steps, 2);
  EXPECT_NEAR(*find(records, "first")->update_s, 3, 1e-6);
}

TEST(UpdateTimes, TheSpreadIsThatOfOneStepInTen) {
  UpdateTimes times;
  EXPECT_EQ(times.spread(), 1);
  times.add(step(3000, SetUp::first));
  for (int i = 0; i < 18; ++i) times.add(step(2));
  times.add(step(60));
  EXPECT_NEAR(times.spread(), 1, 1e-6) << "one in nineteen";
  times.add(step(60));
  EXPECT_NEAR(times.spread(), 30, 1e-4);
}

TEST(UpdateTimes, WithoutOtherStepsThereIsNeither) {
  UpdateTimes times;
  times.add(step(3000, SetUp::first));
  EXPECT_TRUE(std::isnan(times.mean()));
  EXPECT_TRUE(std::isnan(times.median()));
}

}  // namespace
}  // namespace millrace::study
