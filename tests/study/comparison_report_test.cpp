// Reports on several runs: side by side, and on a folder of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "measure/quantiles.h"
#include "study/report/figures.h"
#include "study/report/report.h"
#include "study/report/reports.h"
#include "tests/study/report_files.h"

namespace millrace::report_test {
namespace {

TEST(Distribution, HasItsPeakWhereTheStepsAre) {
  measure::Quantiles steps;
  for (int i = 0; i < 9; ++i) steps.add(0.010);
  EXPECT_TRUE(study::distribution("step", steps).empty()) << "too few";
  for (int i = 0; i < 91; ++i) steps.add(0.010);
  for (int i = 0; i < 50; ++i) steps.add(0.040);
  const auto all = study::distribution("step", steps);
  ASSERT_EQ(all.size(), 1u);
  const study::Series& series = all[0];
  ASSERT_EQ(series.x.size(), series.y.size());
  EXPECT_NEAR(std::accumulate(series.y.begin(), series.y.end(), 0.0), 100, 1e-9);
  const auto peak = std::max_element(series.y.begin(), series.y.end()) - series.y.begin();
  EXPECT_NEAR(series.x[static_cast<std::size_t>(peak)], 10, 0.5);
  EXPECT_NEAR(series.x.back(), 40, 8) << "the shorter peak is there too";
  EXPECT_TRUE(std::is_sorted(series.x.begin(), series.x.end()));
}

TEST(Distribution, OfQuantilesAddedUpIsThatOfAll) {
  measure::Quantiles first, second, both;
  for (int i = 1; i <= 40; ++i) {
    (i % 2 == 0 ? first : second).add(1e-4 * i);
    both.add(1e-4 * i);
  }
  first.add(second);
  EXPECT_EQ(first.count(), 40u);
  EXPECT_EQ(first.at(0.5), both.at(0.5));
  EXPECT_EQ(study::distribution("a", first)[0].y, study::distribution("a", both)[0].y);
  double sum = 0;
  for (const auto& one : first.classes()) sum += one.seconds * static_cast<double>(one.count);
  EXPECT_NEAR(sum, 1e-4 * 820, 1e-4 * 820 * 0.02);
}

TEST(Distribution, TakesStepsOfNoTime) {
  measure::Quantiles steps;
  for (int i = 0; i < 20; ++i) steps.add(0);
  const auto all = study::distribution("load", steps);
  ASSERT_EQ(all.size(), 1u);
  for (const double x : all[0].x) EXPECT_GT(x, 0) << "the axis is logarithmic";
}

TEST(ComparisonReport, LaysCurvesOverEachOther) {
  const Folder folder;
  for (const char* run : {"a", "b"}) {
    const std::string at = run;
    folder.write(at + "/summary.json",
                 R"({"load_s_per_step":0.001,"update_s_per_step":0.002,"images_per_s":10})");
    folder.write(at + "/metrics.jsonl",
                 "{\"epoch\":1,\"train_loss\":2,\"test_loss\":1}\n"
                 "{\"epoch\":2,\"train_loss\":1}\n");
    folder.write(at + "/config.toml", fmt::format("seed = {}\n", at == "a" ? 1 : 2));
  }
  const study::Report report = study::comparison_report({folder.path() / "a", folder.path() / "b"});
  EXPECT_EQ(report.title, "a and b");
  const study::Figure* loss = figure_in(report, "loss");
  ASSERT_NE(loss, nullptr);
  ASSERT_EQ(loss->series.size(), 4u);
  EXPECT_EQ(loss->series[0].name, "a, train");
  EXPECT_EQ(loss->series[3].name, "b, test");
  EXPECT_EQ(table_in(report, "configuration")->rows,
            (std::vector<std::vector<std::string>>{{"seed", "1", "2"}}));
  EXPECT_EQ(figure_in(report, "rate")->series[0].y, (std::vector<double>{10, 10}));
}

/// Writes a run of one or two epochs.
void write_run(const Folder& folder, const std::string& name, int epochs, int seed) {
  folder.write(name + "/summary.json", nlohmann::json{{"load_s_per_step", 0.001},
                                                      {"update_s_per_step", 0.002},
                                                      {"images_per_s", 10 * seed},
                                                      {"bound", "device"}}
                                           .dump());
  std::string lines;
  for (int epoch = 1; epoch <= epochs; ++epoch)
    lines +=
        fmt::format("{{\"epoch\":{},\"images_per_s\":{},\"train_loss\":2}}\n", epoch, 10 * seed);
  folder.write(name + "/metrics.jsonl", lines);
  std::string rows;
  for (int step = 1; step <= 20; ++step) rows += step_row(step);
  folder.write(name + "/steps.csv", steps_header() + rows);
  folder.write(name + "/config.toml", fmt::format("recipe = \"r\"\nseed = {}\n", seed));
}

void expect_distinct(const study::Report& report) {
  std::set<std::string> ids, titles;
  for (const study::Figure& figure : report.figures) {
    EXPECT_TRUE(ids.insert(figure.id).second) << figure.id;
    EXPECT_TRUE(titles.insert(figure.title).second) << figure.title;
  }
}

TEST(ComparisonReport, TitlesTellFiguresApart) {
  const Folder folder;
  write_run(folder, "a", 1, 1);
  write_run(folder, "b", 2, 2);
  const study::Report report = study::comparison_report({folder.path() / "a", folder.path() / "b"});
  expect_distinct(report);
  std::set<std::string> titles;
  for (const study::Figure& figure : report.figures) titles.insert(figure.title);
  for (const char* title :
       {"Images per second by run", "Images per second by step", "Images per second by epoch"})
    EXPECT_TRUE(titles.contains(title)) << title;
  const study::Figure* ridge = figure_in(report, "step-distribution");
  ASSERT_NE(ridge, nullptr);
  ASSERT_EQ(ridge->series.size(), 2u) << "one row per run";
  EXPECT_EQ(ridge->series[0].name, "a");
}

/// Writes a run with resolved settings.
void write_settings(const Folder& folder, const std::string& name, int workers, int threads,
                    double update_s) {
  folder.write(name + "/summary.json",
               nlohmann::json{{"complete", true},
                              {"workers", workers},
                              {"threads", threads},
                              {"device", fmt::format("cpu ({} threads)", threads)},
                              {"host", "here"},
                              {"update_s_per_step", update_s},
                              {"load_s_per_step", 0.001}}
                   .dump());
  folder.write(name + "/config.toml",
               fmt::format("[loader]\nworkers = {}\n[train]\nthreads = 0\n", workers));
  folder.write(name + "/steps.csv", steps_header() + step_row(1));
}

TEST(ComparisonReport, NamesWhatDiffersBesidesTheKeys) {
  const Folder folder;
  write_settings(folder, "a", 0, 2, 0.005);
  write_settings(folder, "b", 1, 1, 0.0023);
  write_settings(folder, "c", 2, 1, 0.0051);
  const auto compared = [&](const std::string& other) {
    return study::comparison_report({folder.path() / "a", folder.path() / other});
  };
  EXPECT_TRUE(notes_say(compared("b"),
                        "threads differ too (2, 1), so a comparison mixes both effects; set "
                        "train.threads=1 to compare loader.workers alone"));
  EXPECT_TRUE(notes_say(compared("b"), "updates of b take 0.46 of the time of a's"));
  EXPECT_FALSE(notes_say(compared("b"), "workers differ")) << "its own key";
  EXPECT_FALSE(notes_say(compared("c"), "updates of")) << "2% are noise";
  write_settings(folder, "d", 1, 2, 0.005);
  EXPECT_FALSE(notes_say(compared("d"), "differ")) << "workers alone";
}

TEST(FolderReport, ListsRunsAndTheirCurves) {
  const Folder folder;
  write_run(folder, "runs/a", 2, 1);
  write_run(folder, "runs/b", 2, 2);
  write_run(folder, "runs/c", 1, 3);
  folder.write("runs/broken/config.toml", "recipe = \"r\"\n");
  folder.write("runs/broken/summary.json", "{half");
  folder.write("runs/sweep/design.json", "{}");
  folder.write("runs/notes/read.me", "no run");
  const study::Report report = study::folder_report(folder.path() / "runs");
  expect_distinct(report);
  const study::ReportTable* table = table_in(report, "runs");
  ASSERT_NE(table, nullptr);
  EXPECT_TRUE(table->chooses_runs);
  ASSERT_EQ(table->rows.size(), 4u) << "the runs of recipe r";
  for (const auto& row : table->rows) EXPECT_EQ(row.size(), table->header.size());
  EXPECT_EQ(table->header[1], "images/s") << "results stand first";
  EXPECT_EQ(table->rows[0][0], "a");
  EXPECT_EQ(table->header.back(), "other keys");
  EXPECT_NE(table->rows[0].back().find("seed=1"), std::string::npos) << table->rows[0].back();
  const study::ReportTable* others = table_in(report, "runs-2");
  ASSERT_NE(others, nullptr);
  EXPECT_EQ(others->rows[0][0], "sweep");
  EXPECT_TRUE(notes_say(report, "broken is left out"));
  const study::Figure* rate = figure_in(report, "throughput");
  ASSERT_NE(rate, nullptr);
  ASSERT_EQ(rate->series.size(), 2u) << "c has one epoch";
  EXPECT_EQ(rate->series[1].run, "b");
  EXPECT_EQ(figure_in(report, "step-distribution")->series.size(), 3u);
  EXPECT_NE(study::to_html(report).find("<table class=\"runs\" data-results="), std::string::npos);
}

TEST(FolderReport, LongCurvesAreThinned) {
  const Folder folder;
  write_run(folder, "a", 1000, 1);
  const study::Report report = study::folder_report(folder.path());
  const study::Figure* rate = figure_in(report, "throughput");
  ASSERT_NE(rate, nullptr);
  EXPECT_LE(rate->series[0].x.size(), 100u);
  EXPECT_NEAR(rate->series[0].x[0], 5.5, 1e-9) << "the mean of epochs 1 to 10";
  EXPECT_NEAR(rate->series[0].y[0], 10, 1e-9);
}

}  // namespace
}  // namespace millrace::report_test
