// Intervals, critical values and verdicts, compared with scipy, statsmodels, simulation and hand
// calculation.
#include "study/analysis/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "predict/interval.h"

namespace millrace::study {
namespace {

using Rows = std::vector<std::vector<double>>;

const nlohmann::json& golden() {
  static const auto all = [] {
    std::ifstream in(std::string(MILLRACE_GOLDEN) + "/statistics.json");
    return nlohmann::json::parse(in);
  }();
  return all;
}

/// Returns `count` values with exactly that mean and standard deviation.
std::vector<double> values_with(double mean, double deviation, std::size_t count) {
  std::vector<double> values;
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>(i) - (static_cast<double>(count) - 1) / 2);
    squares += values.back() * values.back();
  }
  for (double& value : values)
    value = mean + value * deviation * std::sqrt((static_cast<double>(count) - 1) / squares);
  return values;
}

TEST(Statistics, TheTIntervalIsScipys) {
  for (const auto& one : golden().at("t")) {
    const std::vector<double> values = one["values"];
    const predict::Interval interval = predict::t_interval(values, one["confidence"]);
    EXPECT_NEAR(interval.mean, one["mean"], 1e-14);
    EXPECT_NEAR(interval.low, one["low"], 1e-12);
    EXPECT_NEAR(interval.high, one["high"], 1e-12);
  }
}

TEST(Statistics, OneObservationHasNoInterval) {
  const std::vector<double> one{3};
  EXPECT_EQ(predict::t_interval(one, 0.95).mean, 3);
  EXPECT_TRUE(std::isnan(predict::t_interval(one, 0.95).low));
  EXPECT_TRUE(std::isnan(figure_interval(one, true).high));
}

TEST(Statistics, DunnettsCriticalValueIsThatOfASimulation) {
  for (const auto& one : golden().at("dunnett")) {
    const double critical = dunnett_critical(one["rows"], one["blocks"], 0.95);
    EXPECT_GT(critical, one["low"]) << one;
    EXPECT_LT(critical, one["high"]) << one;
  }
}

TEST(Statistics, DunnettsCriticalValueWithManyBlocksIsDunnetts) {
  for (const auto& one : golden().at("pooled"))
    EXPECT_NEAR(dunnett_critical(one["rows"], 2000, 0.95), one["critical"], 3e-3) << one;
}

TEST(Statistics, DunnettsCriticalValueOfOneRowIsStudents) {
  EXPECT_NEAR(dunnett_critical(1, 5, 0.95), 2.7764451052, 1e-9);
  for (const std::size_t rows : {2u, 5u}) {  // between one comparison and independent ones
    EXPECT_GT(dunnett_critical(rows, 6, 0.95), dunnett_critical(1, 6, 0.95));
    EXPECT_LT(dunnett_critical(rows, 6, 0.95),
              dunnett_critical(1, 6, std::pow(0.95, 1.0 / static_cast<double>(rows))));
  }
  EXPECT_NEAR(dunnett_critical(3, 4, 0.95), dunnett_critical(1, 4, std::cbrt(0.95)), 1e-9);
}

TEST(Statistics, TheBootstrapsCriticalValueIsThatOfManyResamples) {
  for (const auto& one : golden().at("bootstrap")) {
    const Rows rows = one["rows"];
    const double critical = bootstrap_critical(rows, 0.95);
    EXPECT_GT(critical, one["low"]);
    EXPECT_LT(critical, one["high"]);
    EXPECT_EQ(critical, bootstrap_critical(rows, 0.95)) << "the same table, however often";
  }
}

TEST(Statistics, TheSmallestDetectableEffectIsStatsmodels) {
  for (const auto& one : golden().at("power"))
    EXPECT_NEAR(smallest_detectable(one["critical"], one["deviation"], one["count"]), one["effect"],
                1e-6);
  EXPECT_EQ(smallest_detectable(2.8, 0, 5), 0);
}

TEST(Statistics, FiguresAreGeometricMeans) {
  const std::vector<double> values{100, 400};
  EXPECT_NEAR(figure_interval(values, true).mean, 200, 1e-9);
  EXPECT_NEAR(figure_interval(values, false).mean, 250, 1e-9);
  const std::vector<double> with_zero{0, 2};
  EXPECT_NEAR(figure_interval(with_zero, true).mean, 1, 1e-12) << "zero has no logarithm";
}

TEST(Statistics, RatiosAreTakenWithinBlocks) {
  const std::vector<double> cell{200, 30, 1}, reference{100, 10, 0};
  const auto ratios = log_ratios(cell, reference);
  EXPECT_NEAR(ratios[0], std::log(2), 1e-15);
  EXPECT_NEAR(ratios[1], std::log(3), 1e-15);
  EXPECT_TRUE(std::isnan(ratios[2]));
}

TEST(Verdicts, FewerThanFiveRepeatsHaveAnIntervalAndNoVerdict) {
  const Rows rows{values_with(0.5, 0.001, 4)};
  const auto result = compare(rows, {});
  EXPECT_EQ(result[0].verdict, Verdict::none);
  EXPECT_GT(result[0].ratio.low, 1.6);
  EXPECT_EQ(compare(Rows{values_with(0.5, 0.001, 5)}, {})[0].verdict, Verdict::faster);
  EXPECT_TRUE(std::isnan(compare(Rows{{0.5}}, {})[0].ratio.low));
}

TEST(Verdicts, ALongerTimeIsSlowerAHigherRateFaster) {
  const Rows rows{values_with(0.5, 0.01, 6), values_with(-0.5, 0.01, 6)};
  const auto rate = compare(rows, {.more_is_faster = true});
  EXPECT_EQ(rate[0].verdict, Verdict::faster);
  EXPECT_EQ(rate[1].verdict, Verdict::slower);
  const auto time = compare(rows, {.more_is_faster = false});
  EXPECT_EQ(time[0].verdict, Verdict::slower);
  EXPECT_EQ(time[1].verdict, Verdict::faster);
}

TEST(Verdicts, EquivalentWinsWhereBothHold) {
  // 1% with nearly no noise: certainly not zero, and certainly within 3%.
  const Rows rows{values_with(0.01, 0.0005, 6)};
  EXPECT_EQ(compare(rows, {.margin = 0.03})[0].verdict, Verdict::equivalent);
  EXPECT_EQ(compare(rows, {.margin = 0.005})[0].verdict, Verdict::faster);
}

TEST(Verdicts, EquivalenceIsByTheRowsOwnNinetyPercent) {
  // t of 5 degrees: 2.0150 at 90%; the margin is ln 1.03 = 0.029559. With standard error 0.01, the
  // mean 0.009 lies inside (0.02915) and 0.0095 outside (0.02965).
  const double deviation = 0.01 * std::sqrt(6.0);
  EXPECT_EQ(compare(Rows{values_with(0.009, deviation, 6)}, {})[0].verdict, Verdict::equivalent);
  EXPECT_EQ(compare(Rows{values_with(0.0095, deviation, 6)}, {})[0].verdict, Verdict::inconclusive);
}

TEST(Verdicts, MoreRowsWidenTheIntervals) {
  // t = 3.5 of 4 degrees: beyond 2.776 for one row, within Dunnett's 3.893 for three.
  const auto row = values_with(0.35, 0.1 * std::sqrt(5.0), 5);
  EXPECT_EQ(compare(Rows{row}, {})[0].verdict, Verdict::faster);
  const auto three = compare(Rows{row, row, row}, {});
  EXPECT_EQ(three[0].verdict, Verdict::inconclusive);
  EXPECT_GT(detectable_ratio(three[0]), 1.35);
}

TEST(Verdicts, FiguresWithoutARatioHaveNone) {
  EXPECT_EQ(compare(Rows{{NAN, NAN, NAN, NAN, NAN}}, {})[0].verdict, Verdict::none);
  EXPECT_TRUE(compare(Rows{}, {}).empty());
}

TEST(Verdicts, AnIntervalOfZeroWidthAtNoEffectIsNoEquivalence) {
  for (const std::size_t blocks : {5, 12}) {
    const Comparison equal = compare(Rows{std::vector<double>(blocks, 0.0)}, {})[0];
    EXPECT_EQ(equal.verdict, Verdict::identical);
    EXPECT_EQ(name_of(equal.verdict), "identical");
  }
  EXPECT_EQ(compare(Rows{{0, 0, 1e-6, 0, 0}}, {})[0].verdict, Verdict::equivalent);
  EXPECT_EQ(compare(Rows{{0, 0, 0}}, {})[0].verdict, Verdict::none) << "too few blocks";
}

TEST(Repeats, AreTheFewestThatFindTheMargin) {
  for (const double deviation : {0.001, 0.02, 0.05}) {
    const Rows rows{values_with(0.4, deviation, 5), values_with(0, deviation / 2, 5)};
    const RepeatChoice choice = choose_repeats(rows, 0.03, 400);
    ASSERT_TRUE(choice.suffices);
    const auto found = [&](std::uint64_t repeats) {
      // chi^2 of 4 degrees is below 1.648777 with a probability of 20%
      const double planned = deviation * std::sqrt(4 / 1.648777);
      return smallest_detectable(dunnett_critical(2, repeats, kConfidenceAfterPilot), planned,
                                 repeats) <= std::log(1.03);
    };
    EXPECT_TRUE(found(choice.repeats)) << deviation;
    EXPECT_TRUE(choice.repeats == 5 || !found(choice.repeats - 1)) << deviation;
    EXPECT_LE(choice.detectable, 1.03);
  }
}

TEST(Repeats, SayWhenTheLimitDoesNotSuffice) {
  const RepeatChoice choice = choose_repeats(Rows{values_with(0, 0.5, 5)}, 0.03, 20);
  EXPECT_EQ(choice.repeats, 20u);
  EXPECT_FALSE(choice.suffices);
  EXPECT_GT(choice.detectable, 1.3);
  EXPECT_EQ(choose_repeats(Rows{}, 0.03, 20).repeats, 5u) << "nothing to compare";
}

}  // namespace
}  // namespace millrace::study
