// Reports on sweeps as they leave their directory: complete, half run, damaged.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "millrace/error.h"
#include "study/analysis/whatif.h"
#include "study/report/reports.h"
#include "study/sweep/sweep_table.h"
#include "tests/study/report_files.h"

namespace millrace::report_test {
namespace {

using Json = nlohmann::ordered_json;

/// Returns a summary of a run without workers on four cores: 2 ms to load a batch of 64, 1 ms to
/// update.
Json recorded_summary() {
  return {{"cores", 4},
          {"workers", 0},
          {"prefetch", 4},
          {"io_threads", 0},
          {"batch", 64},
          {"steps", 100},
          {"images", 6400},
          {"world_size", 1},
          {"threads", 1},
          {"device", "simulated (1 ms per step)"},
          {"load_s_per_step", 0.002},
          {"update_s_per_step", 0.001},
          {"dataset", {{"samples", 64000}}},
          {"loader_cpu_s", {{"read", 0.04}, {"decode", 0.08}, {"augment", 0.08}}},
          {"spans", {{"log", 0}}}};
}

TEST(RecordedReplay, NeedsAllItsFigures) {
  const auto input = study::recorded_input(study::summary_from(recorded_summary()), false);
  ASSERT_TRUE(input);
  EXPECT_NEAR(input->sample_s, 25e-6, 1e-12);
  EXPECT_NEAR(input->read_s, 6.25e-6, 1e-12);
  EXPECT_EQ(input->update_threads, 0);
  EXPECT_FALSE(study::recorded_input(study::summary_from(recorded_summary()), true))
      << "emulated storage";
  for (const char* key : {"cores", "batch", "images", "loader_cpu_s", "dataset", "spans"}) {
    Json summary = recorded_summary();
    summary.erase(key);
    EXPECT_FALSE(study::recorded_input(study::summary_from(summary), false)) << key;
  }
  for (const char* key : {"cores", "workers", "io_threads", "prefetch", "threads", "batch"}) {
    Json summary = recorded_summary();
    summary[key] = std::int64_t{1} << 40;
    EXPECT_FALSE(study::recorded_input(study::summary_from(summary), false)) << key;
  }
  Json ranks = recorded_summary();
  ranks["world_size"] = 2;
  EXPECT_FALSE(study::recorded_input(study::summary_from(ranks), false));
  Json chosen = recorded_summary();
  chosen["auto_workers"] = {{"first", 1}};
  EXPECT_FALSE(study::recorded_input(study::summary_from(chosen), false));
  EXPECT_FALSE(study::recorded_input(study::summary_from(Json()), false));
}

/// Writes a sweep of two rows and `repeats` repeats; the runs are in runs/ or, if finished, in
/// sweep.json.
void write_sweep(const Folder& folder, int repeats, bool finished, int missing = 0) {
  folder.write("design.json", R"({"recipe":["r","loader.workers=0,2"],"cells":[],"design":"grid",)"
                              R"("repeats":"5","metric":"images_per_s"})");
  Json cells = Json::array();
  for (int cell = 0; cell < 2; ++cell) {
    const std::string override = fmt::format("loader.workers={}", 2 * cell);
    Json runs = Json::array();
    for (int repeat = 0; repeat < repeats; ++repeat) {
      const std::string name = fmt::format("{:03}-w-r{}", 2 * repeat + cell + 1, repeat + 1);
      const double rate = (cell == 0 ? 100 : 200) * (1 + 0.01 * repeat);
      const Json figures{{"load_s_per_step", 0.002},
                         {"update_s_per_step", 0.001},
                         {"load_s", 2},
                         {"update_s", 1},
                         {"wall_s", 4},
                         {"images_per_s", rate},
                         {"top1", 0.9},
                         {"threads", 1}};
      Json run{{"run", name}};
      run.update(figures);
      runs.push_back(run);
      if (finished) continue;
      folder.write("runs/" + name + ".json", Json{{"key", "k"},
                                                  {"binary", "b"},
                                                  {"data", "d"},
                                                  {"session", "s"},
                                                  {"overrides", {override}},
                                                  {"repeat", repeat},
                                                  {"seed", repeat},
                                                  {"begun", repeat},
                                                  {"ended", nullptr}}
                                                 .dump());
      if (2 * repeat + cell >= 2 * repeats - missing) continue;
      folder.write("runs/" + name + "/summary.json", figures.dump());
      folder.write("runs/" + name + "/config.toml",
                   fmt::format("[loader]\nworkers = {}\n", 2 * cell));
    }
    cells.push_back({{"overrides", {override}}, {"runs", runs}});
  }
  if (finished)
    folder.write("sweep.json", Json{{"metric", "images_per_s"},
                                    {"margin", 0.05},
                                    {"warnings", {"a warning of the sweep's"}},
                                    {"cells", cells}}
                                   .dump());
}

TEST(SweepReport, SaysWhatTheSweepSaid) {
  const Folder sweep;
  write_sweep(sweep, 5, true);
  const study::Report report = study::sweep_report(sweep.path());
  EXPECT_EQ(report.verdict,
            "by images_per_s, against the first row: 1 faster, 0 slower, 0 equivalent, 0 "
            "inconclusive");
  EXPECT_TRUE(notes_say(report, "warning: a warning of the sweep's"));
  const study::ReportTable* table = table_in(report, "table");
  ASSERT_NE(table, nullptr);
  ASSERT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(table->rows[1].front(), "2");
  EXPECT_EQ(table->rows[1].back(), "faster");
  const study::Figure* workers = figure_in(report, "workers");
  ASSERT_NE(workers, nullptr);
  EXPECT_EQ(workers->series[0].x, (std::vector<double>{0, 2}));
  EXPECT_NEAR(workers->series[0].y[1], 204, 0.1);
  EXPECT_LT(workers->series[0].low[1], 204);
  EXPECT_GT(workers->series[0].high[1], 204);
  for (const char* id : {"rate", "load-update", "ratio", "accuracy"})
    EXPECT_NE(figure_in(report, id), nullptr) << id;
  const study::Figure* ratio = figure_in(report, "ratio");
  EXPECT_EQ(ratio->series[0].y[0], 1);
  EXPECT_NEAR(ratio->series[0].y[1], 2, 1e-9);
  EXPECT_TRUE(ratio->series[1].bound);
  EXPECT_NEAR(ratio->series[1].y[0], 1.05, 1e-12);
}

TEST(SweepReport, AccuracyStandsBesideSpeed) {
  const Folder sweep;
  write_sweep(sweep, 5, true);
  const study::Report report = study::sweep_report(sweep.path());
  const study::Figure* figure = figure_in(report, "accuracy-speed");
  ASSERT_NE(figure, nullptr);
  ASSERT_EQ(figure->series.size(), 2u) << "one point per row";
  EXPECT_EQ(figure->series[1].name, "2");
  EXPECT_NEAR(figure->series[1].x[0], 204, 0.1);
  EXPECT_NEAR(figure->series[1].y[0], 90, 1e-9);
}

TEST(SweepReport, DistributionsAreThoseOfAllRepeats) {
  const Folder sweep;
  write_sweep(sweep, 2, true);
  EXPECT_EQ(figure_in(study::sweep_report(sweep.path()), "step-distribution"), nullptr);
  std::string rows;
  for (int step = 1; step <= 6; ++step) rows += step_row(step);
  for (int repeat = 0; repeat < 2; ++repeat)
    for (int cell = 0; cell < 2; ++cell)
      sweep.write(fmt::format("runs/{:03}-w-r{}/steps.csv", 2 * repeat + cell + 1, repeat + 1),
                  steps_header() + rows);
  const study::Report report = study::sweep_report(sweep.path());
  const study::Figure* figure = figure_in(report, "step-distribution");
  ASSERT_NE(figure, nullptr) << "6 steps of one run are too few, 12 of two are not";
  EXPECT_EQ(figure->kind, study::FigureKind::ridge);
  ASSERT_EQ(figure->series.size(), 2u);
  EXPECT_EQ(figure->series[1].name, "2");
}

TEST(SweepReport, WorkersHaveThePredictedCurve) {
  const Folder sweep;
  write_sweep(sweep, 2, true);
  EXPECT_EQ(figure_in(study::sweep_report(sweep.path()), "load-update")->series.size(), 2u)
      << "no records to predict from";
  sweep.write("runs/001-w-r1/config.toml",
              "[loader]\nworkers = 0\n[data.storage]\nlatency = 0.0\n");
  sweep.write("runs/001-w-r1/summary.json", recorded_summary().dump());
  const study::Report report = study::sweep_report(sweep.path());
  const study::Figure* figure = figure_in(report, "load-update");
  ASSERT_EQ(figure->series.size(), 3u);
  const study::Series& line = figure->series[2];
  EXPECT_TRUE(line.line);
  ASSERT_EQ(line.y.size(), 2u);
  EXPECT_NEAR(line.y[0], 3, 0.05) << "64 samples of 31.25 µs, then 1 ms of update";
  EXPECT_NEAR(line.y[1], 1, 0.2) << "two workers on four cores load while the device updates";
  EXPECT_NE(figure->caption.find("loader.workers=0"), std::string::npos);

  sweep.write("runs/001-w-r1/config.toml", "[data.storage]\nlatency = 3.0\n");
  EXPECT_EQ(figure_in(study::sweep_report(sweep.path()), "load-update")->series.size(), 2u)
      << "an emulated storage is not in the records";
}

TEST(SweepReport, OfAHalfSweepShowsWholeRepeatsWithoutVerdict) {
  const Folder sweep;
  write_sweep(sweep, 6, false, 1);
  const study::SweepFiles files = study::read_sweep(sweep.path());
  EXPECT_FALSE(files.finished);
  EXPECT_EQ(files.runs.size(), 11u);
  ASSERT_TRUE(files.table);
  EXPECT_EQ(files.table->repeats(), 5u);
  const study::Report report = study::sweep_report(sweep.path());
  EXPECT_TRUE(report.verdict.empty());
  EXPECT_TRUE(notes_say(report, "11 of 12 runs"));
  EXPECT_EQ(table_in(report, "runs")->rows.size(), 11u);
  const study::ReportTable* table = table_in(report, "table");
  EXPECT_EQ(table->header.back(), "images_per_s ratio");
  EXPECT_EQ(table->rows[1].size(), table->header.size());
  EXPECT_EQ(table_in(report, "rows")->rows[1][1], "loader.workers = 2 (not 0)");

  const Folder first;
  write_sweep(first, 1, false, 2);
  EXPECT_FALSE(study::read_sweep(first.path()).table) << "no repeat is whole";
  EXPECT_NO_THROW(study::sweep_report(first.path()));
}

TEST(SweepReport, DamagedFilesAreErrors) {
  const Folder sweep;
  write_sweep(sweep, 2, true);
  sweep.write("sweep.json", R"({"cells":[{"runs":[]}]})");
  EXPECT_THROW(study::sweep_report(sweep.path()), DataError)
      << "other combinations than were asked";
  sweep.write("sweep.json", "{\"cells\":");
  EXPECT_THROW(study::sweep_report(sweep.path()), DataError);
  write_sweep(sweep, 2, true);
  sweep.write("design.json", "{}");
  EXPECT_THROW(study::sweep_report(sweep.path()), DataError);
}

}  // namespace
}  // namespace millrace::report_test
