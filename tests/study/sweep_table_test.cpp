// Tables of sweeps: means, intervals, ratios, verdicts, warnings.
#include "study/sweep/sweep_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "millrace/error.h"

namespace millrace::study {
namespace {

SweepRecord run_of(double rate, std::uint64_t repeat) {
  SweepRecord run;
  run.name = "run-" + std::to_string(repeat);
  run.repeat = repeat;
  run.session = "one";
  run.noise = noise_between({NAN, NAN, NAN, NAN, NAN}, {}, 0);
  run.figures = {0.002, 0.001, 2, 1, 3, rate, NAN, 1};
  return run;
}

std::vector<SweepRecord> runs_of(const std::vector<double>& rates) {
  std::vector<SweepRecord> runs;
  for (const double rate : rates) runs.push_back(run_of(rate, runs.size()));
  return runs;
}

const SweepDesign kTwo = grid_design({{"loader.workers", {"0", "1"}}, {"seed", {"1"}}});

SweepTable table_of(const std::vector<double>& first, const std::vector<double>& second) {
  return sweep_table(kTwo, {runs_of(first), runs_of(second)}, sweep_metric("images_per_s"), 0.03);
}

bool has(const std::vector<std::string>& lines, const std::string& text) {
  for (const auto& line : lines)
    if (line.find(text) != std::string::npos) return true;
  return false;
}

TEST(SweepTable, ComparesWithinBlocks) {
  // The machine was twice as fast during the second block.
  const SweepTable table = table_of({100, 200}, {200, 400});
  const auto rows = text_rows(table);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0][0], "loader.workers");
  EXPECT_EQ(rows[0].back(), "images_per_s ratio") << "two repeats: no verdict";
  EXPECT_EQ(rows[1].back(), "1.000");
  EXPECT_EQ(rows[2].back(), "2.000 [2.000 .. 2.000]");
  EXPECT_EQ(rows[2][0], "1");
  // Geometric mean 282.8; ln 400/200 has standard error 0.3466 and t = 12.706 for one degree.
  EXPECT_TRUE(rows[2][7].starts_with("283 [3 .. ")) << rows[2][7];
  EXPECT_EQ(rows[2][2], "2.0000 [2.0000 .. 2.0000]");
  EXPECT_EQ(rows[2][8], "-") << "no model, no accuracy";
  EXPECT_TRUE(has(text_notes(table), "fewer than 5 repeats: no verdict"));
}

TEST(SweepTable, OneRunHasNoInterval) {
  const SweepTable table = table_of({100}, {150});
  const auto rows = text_rows(table);
  EXPECT_EQ(rows[2].back(), "1.500");
  EXPECT_EQ(rows[2][7], "150");
  EXPECT_TRUE(has(text_notes(table), "one run per row"));
}

TEST(SweepTable, FiveRepeatsHaveVerdicts) {
  const std::vector<double> first{100, 101, 99, 100, 102};
  const auto verdict = [&](const std::vector<double>& second) {
    const auto rows = text_rows(table_of(first, second));
    EXPECT_EQ(rows[0].back(), "verdict");
    EXPECT_EQ(rows[1].back(), "-");
    return rows[2].back();
  };
  EXPECT_EQ(verdict({150, 151, 149, 152, 150}), "faster");
  EXPECT_EQ(verdict({50, 51, 49, 52, 50}), "slower");
  EXPECT_EQ(verdict({100, 101.5, 99, 100, 101.5}), "equivalent");
  EXPECT_TRUE(verdict({90, 110, 95, 105, 104}).starts_with("inconclusive (detects "));
}

TEST(SweepTable, TellsOfNoiseOutliersAndCutBlocks) {
  SweepTable table = table_of({100, 101, 99, 100, 102}, {100, 101, 99, 100, 30});
  EXPECT_TRUE(has(table.warnings, "images_per_s of run-4 lies far"));
  auto runs = table.runs;
  runs[1][2].session = "two";
  runs[1][2].begun = 90;
  runs[0][0].noise.steal = 0.2;
  table = sweep_table(kTwo, runs, sweep_metric("wall_s"), 0.03);
  EXPECT_TRUE(has(table.warnings, "block 3 was cut by an interruption: its runs began up to 90 s"));
  EXPECT_TRUE(has(table.warnings, "steal) during 1 of 10 runs, at most 20.0%"));
  EXPECT_TRUE(has(text_notes(table), "warning: block 3"));
}

TEST(SweepTable, AsJsonHasTheNumbers) {
  const auto json = to_json(table_of({100, 101, 99, 100, 102}, {150, 151, 149, 152, 150}));
  const auto& cell = json["cells"][1];
  EXPECT_EQ(cell["overrides"][0], "loader.workers=1");
  EXPECT_EQ(cell["comparison"]["verdict"], "faster");
  EXPECT_NEAR(cell["comparison"]["ratio"], 1.498, 0.002);
  EXPECT_LT(cell["comparison"]["low"], cell["comparison"]["low_90"]);
  EXPECT_EQ(cell["runs"].size(), 5u);
  EXPECT_TRUE(cell["figures"]["top1"]["mean"].is_null());
  EXPECT_TRUE(json["cells"][0]["comparison"].is_null());
}

TEST(SweepTable, UnknownMetricIsRefused) {
  EXPECT_THROW(sweep_metric("speed"), UsageError);
  EXPECT_FALSE(sweep_metric("load_s").more_is_faster);
}

}  // namespace
}  // namespace millrace::study
