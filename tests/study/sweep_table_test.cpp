// Tables of sweeps: means, intervals, ratios, differences, verdicts, warnings, and their text.
#include "study/sweep/sweep_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "millrace/error.h"
#include "study/sweep/study_file.h"
#include "study/sweep/sweep_pace.h"

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
  return sweep_table(kTwo, {runs_of(first), runs_of(second)}, sweep_metrics("images_per_s"), {});
}

/// Returns the cell of the column with that title in the row.
std::string cell(const TextRows& rows, std::size_t row, const std::string& title) {
  for (std::size_t i = 0; i < rows[0].size(); ++i)
    if (rows[0][i] == title) return rows[row][i];
  return "no column " + title;
}

/// Returns a terminal's table as lines, each cell behind the other after two spaces.
std::string drawn(const TerminalTable& table) {
  std::string text;
  for (const TextBlock& block : table.blocks) {
    if (!block.heading.empty()) text += block.heading + "\n";
    std::vector<std::size_t> widths(block.rows[0].size());
    for (const auto& row : block.rows)
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (std::size_t r = 0; r < block.rows.size(); ++r) {
      for (std::size_t i = 0; i < widths.size(); ++i)
        text += i == 0 ? fmt::format("{:<{}}", block.rows[r][i], widths[i])
                       : fmt::format("  {:>{}}", block.rows[r][i], widths[i]);
      text += "\n" + (block.remarks[r].empty() ? "" : "  " + block.remarks[r] + "\n");
    }
  }
  return text;
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
  EXPECT_TRUE(cell(rows, 2, "images/s").starts_with("283 [3 .. ")) << cell(rows, 2, "images/s");
  EXPECT_EQ(rows[2][2], "2.0000 [2.0000 .. 2.0000]");
  EXPECT_EQ(cell(rows, 2, "top-1"), "-") << "no model, no accuracy";
  EXPECT_TRUE(has(text_notes(table), "fewer than 5 repeats: no verdict"));
}

/// Returns five runs of a cell that used these threads, with updates of these seconds.
std::vector<SweepRecord> runs_with(double rate, const std::string& threads, double update_s) {
  auto runs = runs_of({rate, 1.001 * rate, 0.999 * rate, 1.002 * rate, rate});
  for (SweepRecord& run : runs) {
    run.settings = {{"threads", threads}, {"workers", threads == "2" ? "0" : "1"}, {"host", "a"}};
    run.figures.update_s_per_step = update_s * rate / run.figures.images_per_s;
  }
  return runs;
}

TEST(SweepTable, SaysWhatDiffersBesidesTheKeys) {
  const SweepTable table =
      sweep_table(kTwo, {runs_with(100, "2", 0.005), runs_with(230, "1", 0.0023)},
                  sweep_metrics("images_per_s"), {});
  const auto rows = text_rows(table);
  EXPECT_EQ(cell(rows, 1, "threads"), "2");
  EXPECT_EQ(cell(rows, 2, "threads"), "1");
  EXPECT_EQ(cell(rows, 2, "workers"), "no column workers") << "the sweep's own key";
  EXPECT_EQ(cell(rows, 1, "verdict"), "-");
  EXPECT_EQ(cell(rows, 2, "verdict"), "faster (threads differ)");
  const auto narrow = terminal_table(table, 80, false);
  EXPECT_EQ(cell(narrow.blocks[0].rows, 2, "threads"), "1") << "not hidden behind --wide";
  const auto notes = text_notes(table);
  EXPECT_TRUE(has(notes,
                  "warning: threads differ too (2, 1), so a comparison mixes both effects; "
                  "set train.threads=1 to compare loader.workers alone"));
  EXPECT_TRUE(has(notes, "warning: updates of workers=1 take 0.460 ["));
}

TEST(SweepTable, UpdatesThatDifferForNoKnownCauseStandInTheVerdict) {
  const auto with_workers = [](std::vector<SweepRecord> runs) {
    for (SweepRecord& run : runs) run.settings["workers"] = "0";
    return runs;
  };
  const SweepTable table =
      sweep_table(kTwo, {runs_with(100, "1", 0.005), with_workers(runs_with(80, "1", 0.0075))},
                  sweep_metrics("images_per_s"), {});
  EXPECT_EQ(cell(text_rows(table), 2, "verdict"), "slower (updates differ)");
  EXPECT_TRUE(has(text_notes(table), "warning: updates of workers=1 take 1.5"));
  auto accuracies = table.runs;
  for (std::size_t run = 0; run < accuracies[0].size(); ++run) {
    accuracies[0][run].figures.top1 = 0.9 + 0.001 * static_cast<double>(run);
    accuracies[1][run].figures.top1 = 0.8 + 0.002 * static_cast<double>(run);
  }
  const SweepTable of_accuracy = sweep_table(kTwo, accuracies, sweep_metrics("top1"), {});
  EXPECT_TRUE(of_accuracy.rows[1].updates_differ);
  EXPECT_EQ(cell(text_rows(of_accuracy), 2, "verdict"), "lower") << "updates set no accuracy";
}

TEST(SweepTable, SettingsThatAreEqualOrSweptAreNoConfounders) {
  const auto equal = sweep_table(kTwo, {runs_with(100, "1", 0.005), runs_with(230, "1", 0.005)},
                                 sweep_metrics("images_per_s"), {});
  EXPECT_TRUE(equal.confounders.empty());
  EXPECT_EQ(cell(text_rows(equal), 2, "verdict"), "faster");
  EXPECT_FALSE(has(text_notes(equal), "updates of"));
  const auto swept = sweep_table(grid_design({{"train.threads", {"2", "1"}}}),
                                 {runs_with(100, "2", 0.005), runs_with(230, "1", 0.0023)},
                                 sweep_metrics("images_per_s"), {});
  ASSERT_EQ(swept.confounders.size(), 1u) << "workers=auto chose others";
  EXPECT_EQ(swept.confounders[0].setting, "workers");
  EXPECT_FALSE(has(text_notes(swept), "updates of")) << "threads change updates";
}

TEST(SweepTable, SettingsComeFromTheSummary) {
  const auto of = [](const char* device) {
    return settings_in({{"device", device}, {"threads", 2}, {"batch", 64}, {"wall_s", 1.5}});
  };
  EXPECT_EQ(of("cpu (2 threads)"),
            (Settings{{"device", "cpu"}, {"threads", "2"}, {"batch", "64"}}));
  EXPECT_EQ(of("2 ranks, each cpu (2 threads)"), of("cpu (1 thread)"));
  EXPECT_EQ(of("simulated (5 ms per step)"), (Settings{{"device", "simulated"}, {"batch", "64"}}));
  EXPECT_EQ(of("A GPU (80 GB)"), (Settings{{"device", "A GPU"}, {"batch", "64"}}));
  EXPECT_EQ(settings_in(nullptr), Settings{});
  EXPECT_EQ(settings_in({{"host", nullptr}, {"amp", {1, 2}}, {"ops", {{"a", 1}}}}), Settings{});
}

TEST(SweepTable, AStrangersSettingIsOneQuotedWord) {
  auto runs =
      std::vector<std::vector<SweepRecord>>{runs_with(100, "1", 0.005), runs_with(230, "1", 0.005)};
  for (SweepRecord& run : runs[0])
    run.settings = settings_in({{"amp", "none;reboot"}, {"simd", std::string(1'000'000, 'x')}});
  const auto table = sweep_table(kTwo, runs, sweep_metrics("images_per_s"), {});
  EXPECT_TRUE(has(text_notes(table), "; set 'train.amp=none;reboot' to compare"));
  for (const Confounder& one : table.confounders) EXPECT_LT(one.values[0].size(), 600u);
}

TEST(SweepTable, ADeviceIsNoWordOfTheCommandLine) {
  auto runs =
      std::vector<std::vector<SweepRecord>>{runs_with(100, "1", 0.005), runs_with(230, "1", 0.005)};
  for (auto& cell : runs)
    for (SweepRecord& run : cell) run.settings["device"] = &cell == runs.data() ? "cpu" : "A GPU";
  const auto notes = text_notes(sweep_table(kTwo, runs, sweep_metrics("images_per_s"), {}));
  EXPECT_TRUE(has(notes, "device differs too (cpu, A GPU), so a comparison mixes both effects"));
  EXPECT_FALSE(has(notes, "train.device="));
}

TEST(SweepTable, HostsOfWholeBlocksAreNoConfounders) {
  auto runs =
      std::vector<std::vector<SweepRecord>>{runs_with(100, "1", 0.005), runs_with(230, "1", 0.005)};
  for (auto& cell : runs) cell[3].settings["host"] = "b";
  EXPECT_TRUE(sweep_table(kTwo, runs, sweep_metrics("images_per_s"), {}).confounders.empty());
  runs[1][3].settings["host"] = "c";
  const auto table = sweep_table(kTwo, runs, sweep_metrics("images_per_s"), {});
  ASSERT_EQ(table.confounders.size(), 1u);
  EXPECT_EQ(table.confounders[0].values, (std::vector<std::string>{"varies", "varies"}));
  EXPECT_TRUE(has(text_notes(table), "host differs too (varies, varies)"));
}

TEST(SweepTable, OneRunHasNoInterval) {
  const SweepTable table = table_of({100}, {150});
  const auto rows = text_rows(table);
  EXPECT_EQ(rows[2].back(), "1.500");
  EXPECT_EQ(cell(rows, 2, "images/s"), "150");
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
  EXPECT_EQ(verdict({90, 110, 95, 105, 104}), "too noisy");
}

TEST(SweepTable, TooNoisyRowsSayWhatWouldShow) {
  const SweepTable table = table_of({100, 101, 99, 100, 102}, {30, 300, 60, 150, 104});
  EXPECT_TRUE(has(text_notes(table), "workers=1: too noisy: only differences above "));
  EXPECT_FALSE(has(text_notes(table), "inconclusive"));
  EXPECT_TRUE(has(text_notes(table), "geometric means of 5 runs"));
  EXPECT_EQ(to_json(table)["cells"][1]["comparison"]["verdict"], "inconclusive") << "as recorded";
}

/// Returns runs with accuracies.
std::vector<SweepRecord> accurate(const std::vector<double>& top1) {
  auto runs = runs_of(std::vector<double>(top1.size(), 100));
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].figures.top1 = top1[i];
  return runs;
}

TEST(SweepTable, AccuraciesAreComparedByDifferences) {
  const auto first = accurate({0.90, 0.91, 0.92, 0.90, 0.91});
  const auto verdict_of = [&](const std::vector<double>& second) {
    return sweep_table(kTwo, {first, accurate(second)}, sweep_metrics("top1"), {})
        .rows[1]
        .comparison;
  };
  const Comparison lower = verdict_of({0.80, 0.811, 0.82, 0.80, 0.81});
  EXPECT_TRUE(lower.difference);
  EXPECT_NEAR(lower.ratio.mean, -0.0998, 1e-9);
  EXPECT_EQ(lower.verdict, Verdict::lower);
  EXPECT_EQ(verdict_of({0.95, 0.961, 0.97, 0.95, 0.96}).verdict, Verdict::higher);
  EXPECT_EQ(verdict_of({0.901, 0.911, 0.921, 0.902, 0.911}).verdict, Verdict::equivalent)
      << "within half a percentage point";
  EXPECT_EQ(verdict_of({0.80, 0.99, 0.85, 0.99, 0.85}).verdict, Verdict::inconclusive);
}

TEST(SweepTable, AccuraciesAtChanceLevelAreNoEquivalence) {
  const auto notes_of = [&](const std::vector<double>& first, const std::vector<double>& second) {
    const SweepTable table =
        sweep_table(kTwo, {accurate(first), accurate(second)}, sweep_metrics("top1"), {});
    EXPECT_EQ(text_rows(table)[2].back(), "identical");
    EXPECT_EQ(to_json(table)["cells"][1]["comparison"]["verdict"], "identical");
    return text_notes(table);
  };
  const std::vector<double> chance(5, 0.098), learned{0.9, 0.91, 0.92, 0.9, 0.91};
  EXPECT_TRUE(has(notes_of(chance, chance),
                  "top1 of workers=1: 9.80% in every run: accuracy is at chance, or the runs are "
                  "identical; that shows no equivalence"));
  EXPECT_TRUE(has(notes_of(learned, learned), "top1 of workers=1: identical runs: "));
}

TEST(SweepTable, AFigureThatIsZeroIsComparedByDifferencesToo) {
  auto first = runs_of({100, 100}), second = runs_of({100, 100});
  for (auto& run : first) run.more["failed"] = 0;
  for (auto& run : second) run.more["failed"] = 3;
  const SweepTable table = sweep_table(kTwo, {first, second}, sweep_metrics("failed"), {});
  EXPECT_TRUE(table.rows[1].comparison.difference);
  EXPECT_EQ(table.rows[1].comparison.ratio.mean, 3);
}

TEST(SweepTable, SeveralMetricsStandInOneTable) {
  const SweepTable table = sweep_table(
      kTwo, {accurate({0.9, 0.9, 0.9, 0.91, 0.9}), accurate({0.8, 0.8, 0.81, 0.8, 0.8})},
      sweep_metrics("images_per_s,top1"), {});
  const TextRows rows = text_rows(table);
  EXPECT_EQ(cell(rows, 2, "images_per_s ratio"), "1.000 [1.000 .. 1.000]");
  EXPECT_EQ(cell(rows, 2, "verdict"), "identical");
  EXPECT_TRUE(cell(rows, 2, "top1 difference").starts_with("-10.00 ["));
  EXPECT_EQ(cell(rows, 2, "top1 verdict"), "lower");
  const auto json = to_json(table);
  EXPECT_EQ(json["cells"][1]["comparisons"]["top1"]["verdict"], "lower");
  EXPECT_EQ(json["cells"][1]["comparison"], json["cells"][1]["comparisons"]["images_per_s"]);
}

TEST(SweepTable, FitsIntoEightyColumns) {
  std::vector<std::vector<SweepRecord>> runs;
  for (const double rate : {100., 200., 50., 101.})
    runs.push_back(runs_of({rate, rate * 1.01, rate * 0.99, rate * 1.005, rate}));
  for (auto& cell : runs)
    for (auto& run : cell) {
      run.figures.top1 = 0.99;
      run.more["epoch_s"] = 60;
      run.more["host_bytes"] = 123e6;
    }
  const SweepDesign design = grid_design(
      {{"loader.workers", {"0", "1"}}, {"augment.random_affine.enabled", {"true", "false"}}});
  const SweepTable table = sweep_table(design, runs, sweep_metrics("images_per_s"), {});
  const TerminalTable narrow = terminal_table(table, 80, false);
  EXPECT_EQ(drawn(narrow),
            R"(workers  random_affine.enabled  images/s      images_per_s ratio     verdict
0                         true       100                   1.000           -
0                        false       200  2.000 [2.000 .. 2.000]      faster
1                         true        50  0.500 [0.500 .. 0.500]      slower
1                        false       101  1.010 [1.010 .. 1.010]  equivalent
)");
  EXPECT_EQ(narrow.left_out,
            (std::vector<std::string>{"load ms", "update ms", "top-1", "total s", "s/epoch",
                                      "load s", "update s", "speed-up", "host MB", "threads"}));
  const TerminalTable wider = terminal_table(table, 100, false);
  EXPECT_TRUE(drawn(wider).starts_with(
      "workers  random_affine.enabled  load ms  update ms  images/s      images_per_s ratio"))
      << drawn(wider);
  EXPECT_TRUE(terminal_table(table, 80, true).left_out.empty());
}

TEST(SweepTable, LongRowsAreNumbered) {
  const SweepDesign design = list_design(
      {}, {"", "loader.workers=2 train.strategy=data_parallel train.replicas=2 loader.batch=512"});
  const SweepTable table =
      sweep_table(design, {runs_of({100}), runs_of({200})}, sweep_metrics("images_per_s"), {});
  const TerminalTable narrow = terminal_table(table, 80, false);
  EXPECT_TRUE(
      drawn(narrow).starts_with("row  load ms  update ms  load s  update s  total s  images/s"))
      << drawn(narrow);
  EXPECT_EQ(narrow.legend[0], "row 1: (recipe)");
  EXPECT_TRUE(narrow.legend[1].starts_with("row 2: loader.workers=2 train.strategy=data_parallel"));
}

TEST(SweepTable, CsvHasMeansAndIntervalsAsColumns) {
  const SweepTable table = table_of({100, 200}, {200, 400});
  const TextRows rows = csv_table(table);
  // Programs that read the file find the columns of earlier versions where they were.
  const std::vector<std::string> first{
      "loader.workers", "threads",  "load ms/step", "update ms/step",     "load s", "update s",
      "total s",        "images/s", "top-1",        "images_per_s ratio", "verdict"};
  EXPECT_EQ(std::vector<std::string>(rows[0].begin(), rows[0].begin() + 11), first);
  EXPECT_NEAR(std::stod(cell(rows, 2, "images/s")), 282.84, 0.01);
  EXPECT_GT(std::stod(cell(rows, 2, "images/s high")), 282.84);
  EXPECT_LT(std::stod(cell(rows, 2, "images/s low")), 282.84);
  EXPECT_EQ(cell(rows, 2, "images_per_s ratio low"), cell(rows, 2, "images_per_s ratio"));
  EXPECT_EQ(cell(rows, 2, "top-1"), "");
  const TextRows runs = csv_runs(table);
  ASSERT_EQ(runs.size(), 5u) << "a row per run";
  EXPECT_EQ(std::stod(cell(runs, 4, "images_per_s")), 400);
  EXPECT_EQ(std::stod(cell(runs, 4, "speedup")), 2);
  EXPECT_EQ(cell(runs, 4, "loader.workers"), "1");
}

constexpr const char* kStudy = R"(
title = "A study"
source = "A publication"
recipe = "mnist-lenet"
keys = "train.epochs=10"
metric = "wall_s"
columns = ["wall_s", "speedup", "top1"]
[short]
keys = "train.steps=2"
[[row]]
group = "one"
name = "a"
source = { wall_s = 72.80, top1 = "about 99%" }
[[row]]
group = "one"
name = "b"
keys = "loader.batch=512"
short = "loader.batch=8"
[[row]]
group = "two"
name = "c"
keys = "mnist-mlp train.device=cuda"
[[row]]
group = "two"
name = "d"
)";

TEST(StudyFile, NamesItsRowsAndTheirKeys) {
  const SweepWords words = study_words(parse_study(kStudy, "s.toml"), false, {"seed=7"});
  EXPECT_EQ(words.recipe, "mnist-lenet");
  using Words = std::vector<std::string>;
  ASSERT_EQ(words.design.cells.size(), 4u);
  EXPECT_EQ(words.design.cells[1].overrides,
            (Words{"train.epochs=10", "loader.batch=512", "seed=7"}));
  EXPECT_EQ(words.design.cells[2].overrides,
            (Words{"mnist-mlp", "train.epochs=10", "train.device=cuda", "seed=7"}));
  const SweepWords brief = study_words(parse_study(kStudy, "s.toml"), true, {});
  EXPECT_EQ(brief.design.cells.size(), 4u) << "--short never drops a row";
  EXPECT_EQ(brief.design.figures, words.design.figures) << "nor a column";
  EXPECT_EQ(brief.design.cells[1].overrides,
            (Words{"train.epochs=10", "loader.batch=512", "train.steps=2", "loader.batch=8"}));
  EXPECT_TRUE(has(brief.design.notes, "train.steps=2; b: loader.batch=8"));
}

TEST(StudyFile, MistakesNameTheLine) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      parse_study(text, "s.toml");
    } catch (const UsageError& error) {
      return error.what() + (" | " + error.hint());
    }
    return "accepted";
  };
  const std::string unknown = message("titel = 'x'\n[[row]]\nname = 'a'");
  EXPECT_TRUE(unknown.starts_with("s.toml:1: titel: unknown key")) << unknown;
  EXPECT_NE(unknown.find("did you mean title?"), std::string::npos) << unknown;
  const std::string nameless = message("[[row]]\nkeys = 'a=1'");
  EXPECT_TRUE(nameless.starts_with("s.toml:1: a [[row]] without a name")) << nameless;
  const std::string figure = message("[[row]]\nname = 'a'\nsource = { tpo1 = 1 }");
  EXPECT_NE(figure.find("did you mean top1?"), std::string::npos) << figure;
  const std::string key = message("[[row]]\nname = 'a'\nkeys = 'x=1 y'");
  EXPECT_NE(key.find("y is not key=value"), std::string::npos) << key;
  EXPECT_TRUE(message("x = ").starts_with("s.toml:1: "));
  EXPECT_FALSE(is_study("[loader]\nworkers = 1"));
}

TEST(StudyFile, ARowThatCannotRunPrintsItsReason) {
  const SweepDesign design = study_words(parse_study(kStudy, "s.toml"), false, {}).design;
  auto runs =
      std::vector<std::vector<SweepRecord>>{runs_of({100}), runs_of({150}), {}, runs_of({50})};
  const SweepTable table =
      sweep_table(design, runs, sweep_metrics("wall_s"), {}, kConfidence, {"", "", "no GPU", ""});
  EXPECT_EQ(drawn(terminal_table(table, 80, false)), R"(one
row  total s (source)  speed-up  top-1 (source)
a         3.00 (72.8)     1.00x   - (about 99%)
b                3.00     1.50x               -
two
row  total s (source)  speed-up  top-1 (source)
c                   -         -               -
  not run: no GPU
d                3.00     1.00x               -
)") << "rows are compared within their group, and with the first one that ran";
  EXPECT_EQ(to_json(table)["cells"][2]["refusal"], "no GPU");
  const TextRows csv = csv_table(table);
  EXPECT_EQ(cell(csv, 1, "total s source"), "72.8");
}

TEST(StudyFile, AllColumnsAreShownInSeveralBlocks) {
  const SweepDesign design = study_words(parse_study(kStudy, "s.toml"), false, {}).design;
  const auto runs = std::vector<std::vector<SweepRecord>>(4, runs_of({100}));
  const SweepTable table = sweep_table(design, runs, sweep_metrics("wall_s"), {});
  const TerminalTable narrow = terminal_table(table, 33, false);
  EXPECT_TRUE(narrow.left_out.empty());
  EXPECT_EQ(narrow.blocks.size(), 4u) << "two groups, two blocks each";
  EXPECT_EQ(narrow.blocks[1].heading, "one (continued)");
  EXPECT_EQ(narrow.blocks[1].rows[0], (std::vector<std::string>{"row", "top-1 (source)"}));
}

TEST(SweepPace, EstimatesFromEachRowsOwnRuns) {
  SweepPace pace({2, 2});
  EXPECT_TRUE(std::isnan(pace.remaining_s(0, 5)));
  pace.finished(0, 10);
  EXPECT_EQ(pace.remaining_s(1, 0), 30) << "what is known: 10 s per run";
  pace.finished(1, 100);
  EXPECT_EQ(pace.remaining_s(1, 0), 110);
  EXPECT_EQ(pace.remaining_s(1, 40), 70);
  EXPECT_EQ(pace.remaining_s(1, 400), 10) << "a run that takes longer counts as nearly done";
  EXPECT_EQ(pace.drop(1), 1u);
  EXPECT_EQ(pace.remaining_s(0, 0), 10);
}

TEST(SweepPace, SaysHowFarItIsOncePerMinute) {
  EXPECT_EQ(progress_text(3, 10, 150, 300), "3 of 10 runs, 3 min so far, about 5 min left");
  EXPECT_EQ(progress_text(0, 2, 61, NAN),
            "0 of 2 runs, 61 s so far, no estimate before the first run has ended");
  EXPECT_EQ(duration_text(3 * 3600 + 5 * 60), "3 h 05 min");
  EachMinute minutes;
  int lines = 0;
  for (int second = 0; second <= 300; ++second) lines += minutes.is_due(second) ? 1 : 0;
  EXPECT_EQ(lines, 5);
}

TEST(SweepTable, TellsOfNoiseOutliersAndCutBlocks) {
  SweepTable table = table_of({100, 101, 99, 100, 102}, {100, 101, 99, 100, 30});
  EXPECT_TRUE(has(table.warnings, "images_per_s of run-4 lies far"));
  auto runs = table.runs;
  runs[1][2].session = "two";
  runs[1][2].begun = 90;
  runs[0][0].noise.steal = 0.2;
  table = sweep_table(kTwo, runs, sweep_metrics("wall_s"), {});
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

TEST(SweepTable, MetricsAreNumbersOfTheSummary) {
  EXPECT_THROW(sweep_metric("speed"), UsageError);
  EXPECT_THROW(sweep_metrics("top1,top1"), UsageError);
  for (const char* name : {"spans", "gpus.0", "plugins.0", "top1.a", "verdict"})
    EXPECT_THROW(sweep_metric(name), UsageError) << name;
  EXPECT_TRUE(sweep_metric("update_s_per_step_median").is_speed);
  EXPECT_TRUE(sweep_metric("ranks.1.load_s").is_speed);
  EXPECT_TRUE(sweep_metric("others_busy").is_share);
  EXPECT_FALSE(sweep_metric("load_s").more_is_faster);
  EXPECT_TRUE(sweep_metric("spans.forward").is_speed);
  EXPECT_TRUE(sweep_metric("per_class.7").is_share);
  EXPECT_FALSE(sweep_metric("test_loss").is_speed);
}

}  // namespace
}  // namespace millrace::study
