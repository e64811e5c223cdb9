// A/A studies by the thousand: all combinations are equal. A study that calls any row faster or
// slower raises a false alarm; at most 6% of them may.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "study/analysis/statistics.h"
#include "study/sweep/design.h"

namespace millrace::study {
namespace {

constexpr int kStudies = 4000;

/// Logarithms of one study's figures, in the order of the runs. A normal deviate is a sum of
/// uniform ones, equal on every machine.
class NoiseSource {
 public:
  explicit NoiseSource(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * M_PI * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

using NoiseModel = std::function<std::vector<double>(NoiseSource&, std::size_t)>;

std::vector<double> normal(NoiseSource& source, std::size_t runs) {
  std::vector<double> noise(runs);
  for (double& value : noise) value = 0.03 * source.normal();
  return noise;
}

/// Each run keeps 0.7 of the previous run's deviation: a machine that warms up and cools down.
std::vector<double> autoregressive(NoiseSource& source, std::size_t runs) {
  std::vector<double> noise(runs);
  double state = source.normal();
  for (double& value : noise) {
    value = 0.03 * state;
    state = 0.7 * state + std::sqrt(1 - 0.7 * 0.7) * source.normal();
  }
  return noise;
}

/// Steadily slower, by a tenth to a half over the study.
std::vector<double> drifting(NoiseSource& source, std::size_t runs) {
  std::vector<double> noise = normal(source, runs);
  const double slope = 0.1 + 0.4 * source.uniform();
  for (std::size_t i = 0; i < runs; ++i)
    noise[i] -= slope * static_cast<double>(i) / static_cast<double>(runs);
  return noise;
}

/// One run in ten meets another program and takes up to twice as long.
std::vector<double> spiky(NoiseSource& source, std::size_t runs) {
  std::vector<double> noise = normal(source, runs);
  for (double& value : noise)
    if (source.uniform() < 0.1) value -= std::log(1 + source.uniform());
  return noise;
}

/// Returns the share of studies with a false alarm.
double false_alarms(const NoiseModel& model, std::size_t cells,
                    const std::function<std::size_t(std::span<const std::vector<double>>)>& repeats,
                    std::size_t most, double confidence = kConfidence) {
  NoiseSource source(0x6d696c6c);
  int alarms = 0;
  for (int study = 0; study < kStudies; ++study) {
    const auto order = interleaved(cells, most, static_cast<std::uint64_t>(study));
    const auto noise = model(source, order.size());
    std::vector<std::vector<double>> figures(cells, std::vector<double>(most));
    for (std::size_t i = 0; i < order.size(); ++i)
      figures[order[i].cell][order[i].repeat] = noise[i];
    std::vector<std::vector<double>> rows;
    for (std::size_t cell = 1; cell < cells; ++cell) {
      rows.emplace_back();
      for (std::size_t r = 0; r < most; ++r)
        rows.back().push_back(figures[cell][r] - figures[0][r]);
    }
    const std::size_t used = repeats(rows);
    for (auto& row : rows) row.resize(used);
    bool alarm = false;
    for (const Comparison& one :
         compare(rows, {.margin = 1e-6, .confidence = confidence, .resamples = 199}))
      alarm = alarm || one.verdict == Verdict::faster || one.verdict == Verdict::slower;
    alarms += alarm ? 1 : 0;
  }
  return static_cast<double>(alarms) / kStudies;
}

struct Case {
  const char* name;
  NoiseModel model;

  friend void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }
};

class FalseAlarms : public testing::TestWithParam<Case> {
 protected:
  void expect_few(const char* what, double rate) {
    RecordProperty(what, std::to_string(rate));
    printf("  %s, %s: %.2f%% of %d studies\n", GetParam().name, what, 100 * rate, kStudies);
    EXPECT_LE(rate, 0.06) << what;
  }
};

TEST_P(FalseAlarms, OfOneRow) {
  expect_few("2 rows, 5 repeats", false_alarms(
                                      GetParam().model, 2, [](auto) { return 5; }, 5));
}

TEST_P(FalseAlarms, OfAnyOfSeveralRows) {
  expect_few("5 rows, 5 repeats", false_alarms(
                                      GetParam().model, 5, [](auto) { return 5; }, 5));
}

TEST_P(FalseAlarms, OfTheBootstrap) {
  expect_few("2 rows, 10 repeats", false_alarms(
                                       GetParam().model, 2, [](auto) { return 10; }, 10));
  expect_few("4 rows, 12 repeats", false_alarms(
                                       GetParam().model, 4, [](auto) { return 12; }, 12));
}

TEST_P(FalseAlarms, WhenAPilotChoosesTheRepeats) {
  constexpr std::uint64_t kMax = 30;
  for (const double margin : {0.04, 0.06, 0.08}) {  // with the noise above, from 5 repeats on
    const auto chosen = [&](std::span<const std::vector<double>> rows) {
      const std::vector<std::vector<double>> pilot{
          {rows[0].begin(), rows[0].begin() + kRepeatsForVerdict}};
      return static_cast<std::size_t>(choose_repeats(pilot, margin, kMax).repeats);
    };
    const std::string what = "2 rows, repeats by a pilot for " + std::to_string(margin);
    expect_few(what.c_str(),
               false_alarms(GetParam().model, 2, chosen, kMax, kConfidenceAfterPilot));
  }
}

/// Results of N folds correlate, because any two of them share most of their training samples. The
/// correction holds for a correlation of 1/N.
TEST(FalseAlarmsOfFolds, AreFewWithTheCorrectionAndManyWithout) {
  for (const std::size_t folds : {5, 10}) {
    NoiseSource source(0x666f6c64);
    const double shared = 1 / static_cast<double>(folds);
    int plain = 0, corrected = 0;
    for (int study = 0; study < kStudies; ++study) {
      std::vector<std::vector<double>> rows(1);
      const double common = std::sqrt(shared) * source.normal();
      for (std::size_t fold = 0; fold < folds; ++fold)
        rows[0].push_back(0.01 * (common + std::sqrt(1 - shared) * source.normal()));
      const auto raises_alarm = [&](double overlap) {
        const Verdict verdict = compare(rows, {.margin = 1e-6,
                                               .resamples = 199,
                                               .differences = true,
                                               .is_speed = false,
                                               .overlap = overlap})[0]
                                    .verdict;
        return verdict == Verdict::higher || verdict == Verdict::lower;
      };
      plain += raises_alarm(0) ? 1 : 0;
      corrected += raises_alarm(1 / (static_cast<double>(folds) - 1)) ? 1 : 0;
    }
    printf("  %zu folds: %.2f%% of %d studies, %.2f%% without the correction\n", folds,
           100.0 * corrected / kStudies, kStudies, 100.0 * plain / kStudies);
    EXPECT_LE(corrected, 0.06 * kStudies) << folds;
    EXPECT_GE(plain, 0.1 * kStudies) << folds;
  }
}

INSTANTIATE_TEST_SUITE_P(Noise, FalseAlarms,
                         testing::Values(Case{"normal", normal},
                                         Case{"autoregressive", autoregressive},
                                         Case{"drifting", drifting}, Case{"spiky", spiky}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace millrace::study
