// Ablations: every combination once per block, one row each, and errors that name the run.
#include <set>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class Sweep : public ProgramTest {
 protected:
  Arguments sweep(const Arguments& more) {
    return Arguments{"sweep",
                     "mnist-lenet",
                     "data.path=" + data(),
                     "train.device=simulated",
                     "simulated.update_ms=0.5",
                     "train.epochs=1",
                     "loader.batch=20",
                     "--run",
                     in("sweep").string()} +
           more;
  }
  std::vector<std::string> run_folders() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(in("sweep/runs")))
      if (entry.is_directory()) names.insert(entry.path().filename().string());
    return {names.begin(), names.end()};
  }
  Json record() const { return parse_json(read_file(in("sweep/sweep.json"))); }
  static std::vector<std::string> words_of(const std::string& line) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
  }
};

TEST_F(Sweep, GridHasARowACombination) {
  const Result result =
      run(sweep({"loader.workers=0,1", "augment.random_affine.enabled=true,false", "--wide"}));
  ASSERT_TRUE(succeeded(result));
  const auto lines = lines_of(result.out);
  std::size_t header = 0;
  while (header < lines.size() && !lines[header].starts_with("loader.workers")) ++header;
  ASSERT_LT(header + 4, lines.size()) << result.out;
  for (const char* name : {"augment.random_affine.enabled", "load", "update", "images/s", "top-1",
                           "images_per_s ratio"})
    EXPECT_NE(lines[header].find(name), std::string::npos) << lines[header];
  const std::vector<std::pair<std::string, std::string>> cells{
      {"0", "true"}, {"0", "false"}, {"1", "true"}, {"1", "false"}};
  const auto folders = run_folders();
  ASSERT_EQ(folders.size(), 4u);
  EXPECT_NE(folders[0].find("random_affine.enabled="), std::string::npos) << folders[0];
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto words = words_of(lines[header + 1 + i]);
    ASSERT_GE(words.size(), 11u) << lines[header + 1 + i];
    EXPECT_EQ(words[0], cells[i].first);
    EXPECT_EQ(words[1], cells[i].second);
    EXPECT_GE(std::stod(words[4]), 0.5) << "update, ms per step";
  }
  EXPECT_EQ(words_of(lines[header + 1]).back(), "1.000") << "the first row against itself";
}

TEST_F(Sweep, EveryRunIsRecorded) {
  ASSERT_TRUE(succeeded(run(sweep({"loader.workers=0,1", "loader.prefetch=1,2"}))));
  const auto folders = run_folders();
  ASSERT_EQ(folders.size(), 4u);
  std::set<std::pair<int, int>> seen;
  for (const auto& folder : folders) {
    const Json s = summary("sweep/runs/" + folder);
    EXPECT_EQ(s["images"], 200);
    seen.insert({s["workers"].get<int>(), s["prefetch"].get<int>()});
    EXPECT_TRUE(fs::exists(in("sweep/runs") / folder / "steps.csv"));
  }
  EXPECT_EQ(seen, (std::set<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 1}, {1, 2}}));
  const Json json = record();
  ASSERT_EQ(json["cells"].size(), 4u);
  for (const auto& cell : json["cells"]) {
    ASSERT_EQ(cell["runs"].size(), 1u);
    EXPECT_GT(cell["runs"][0]["images_per_s"], 0.0);
    EXPECT_GE(cell["runs"][0]["update_s"], 10 * 0.0005);
  }
  EXPECT_TRUE(no_temporaries(in("sweep")));
}

TEST_F(Sweep, RepeatsAreInterleaved) {
  const Result result = run(sweep({"loader.workers=0,1", "--repeats", "3"}));
  ASSERT_TRUE(succeeded(result));
  const auto folders = run_folders();
  ASSERT_EQ(folders.size(), 6u);
  for (std::size_t block = 0; block < 3; ++block) {
    std::set<std::string> cells;
    for (std::size_t i = 2 * block; i < 2 * block + 2; ++i) {
      const std::string& name = folders[i];
      EXPECT_TRUE(name.starts_with("00" + std::to_string(i + 1) + "-")) << name;
      EXPECT_TRUE(name.ends_with("-r" + std::to_string(block + 1))) << name;
      const Json s = summary("sweep/runs/" + name);
      EXPECT_EQ(s["seed"], block) << "a repeat has a seed of its own";
      cells.insert(s["workers"].dump());
    }
    EXPECT_EQ(cells.size(), 2u) << "block " << block + 1 << " lacks a combination";
  }
  const Json json = record();
  for (const auto& cell : json["cells"]) EXPECT_EQ(cell["runs"].size(), 3u);
  EXPECT_NE(result.out.find(" .. "), std::string::npos) << "no interval in\n" << result.out;
}

TEST_F(Sweep, CommasInsideBracketsSeparateNothing) {
  ASSERT_TRUE(succeeded(run(sweep({"augment.random_affine.scale=[0.8,1.2],[1,1]"}))));
  const Json json = record();
  ASSERT_EQ(json["cells"].size(), 2u);
  EXPECT_NE(json["cells"][0].dump().find("scale=[0.8,1.2]"), std::string::npos) << json;
  EXPECT_NE(json["cells"][1].dump().find("scale=[1,1]"), std::string::npos) << json;
  EXPECT_EQ(run_folders().size(), 2u);
}

TEST_F(Sweep, CommasInsideBracesSeparateNothing) {
  ASSERT_TRUE(
      succeeded(run(sweep({"augment+=random_crop{size=28,padding=2}", "loader.workers=0,1"}))));
  EXPECT_EQ(record()["cells"].size(), 2u);
}

TEST_F(Sweep, CombinationThatFailsIsNamedWithItsOwnCode) {
  const Result result = run(sweep({"loader.batch=20,201"}));
  EXPECT_TRUE(refused(result, 2, {"batch=201", "larger than the data set"}, false));
  EXPECT_FALSE(fs::exists(in("sweep/sweep.json")));
  const Result missing = run(sweep({"data.split=train,test", "data.path=" + in("no").string()}));
  EXPECT_TRUE(refused(missing, 3, {in("no").string()}, false));
}

TEST_F(Sweep, MistakesShowBeforeAnythingRuns) {
  EXPECT_TRUE(refused(run(sweep({"loader.wrokers=0,1"})), 2,
                      {"loader.wrokers", "did you mean loader.workers?"}));
  EXPECT_TRUE(refused(run(sweep({"loader.workers=0,-1"})), 2, {"loader.workers", "-1"}));
  EXPECT_TRUE(refused(run(sweep({"loader.workers=0,,1"})), 2, {"loader.workers=0,,1", "empty"}));
  EXPECT_TRUE(refused(run(sweep({"loader.workers=0,1", "--metric", "image_per_s"})), 2,
                      {"image_per_s", "did you mean images_per_s?"}));
  for (const char* repeats : {"0", "-1", "often", "5x"})
    EXPECT_TRUE(refused(run(sweep({"loader.workers=0,1", "--repeats", repeats})), 2,
                        {"--repeats", repeats}));
  EXPECT_FALSE(fs::exists(in("sweep")));
}

TEST_F(Sweep, NothingSweptIsAMistake) {
  EXPECT_TRUE(refused(run(sweep({"loader.workers=1"})), 2, {"nothing is swept"}));
  EXPECT_TRUE(refused(run({"sweep", "mnist-lenet"}), 2, {"nothing is swept"}));
  EXPECT_FALSE(fs::exists(in("sweep")));
}

TEST_F(Sweep, TrainProposesASweepForSeveralValues) {
  const Result result = run({"train", "mnist-lenet", "loader.workers=0,1,2"});
  EXPECT_TRUE(refused(result, 2, {"loader.workers=0,1,2: one run takes one value"}));
  EXPECT_NE(result.err.find("millrace sweep mnist-lenet loader.workers=0,1,2"), std::string::npos)
      << result.err;
  EXPECT_TRUE(
      refused(run({"train", "mnist-lenet", "loader.wrokers=0,1,2"}), 2, {"loader.wrokers"}));
}

TEST_F(Sweep, TheTableFitsTheTerminal) {
  RunOptions terminal;
  terminal.env = {{"COLUMNS", "80"}};
  const Result narrow = run(sweep({"loader.workers=0,1", "--repeats", "2"}), terminal);
  ASSERT_TRUE(succeeded(narrow));
  for (const auto& line : lines_of(narrow.out)) {
    const bool names_a_path = line.find(in("").string()) != std::string::npos;
    EXPECT_TRUE(names_a_path || line.size() <= 80) << line;
  }
  EXPECT_NE(narrow.out.find("more columns by --wide or in"), std::string::npos) << narrow.out;
  const Result wide = run({"sweep", "--resume", "--run", in("sweep").string(), "--wide"});
  ASSERT_TRUE(succeeded(wide));
  for (const char* title : {"threads", "load s", "host MB", "speed-up", "CPU"})
    EXPECT_NE(wide.out.find(title), std::string::npos) << title << " in\n" << wide.out;
}

TEST_F(Sweep, CsvHasAColumnPerEndAndARowPerRun) {
  ASSERT_TRUE(succeeded(run(sweep({"loader.workers=0,1", "--repeats", "2"}))));
  const auto table = lines_of(read_file(in("sweep/table.csv")));
  ASSERT_EQ(table.size(), 3u);
  EXPECT_TRUE(table[0].starts_with("loader.workers,threads,load ms/step,")) << table[0];
  for (const char* column : {",images/s low,", ",images/s high,", ",s/epoch,", ",host MB,"})
    EXPECT_NE(table[0].find(column), std::string::npos) << column << " in " << table[0];
  EXPECT_EQ(table[1].find(" .. "), std::string::npos) << "numbers, no intervals in one cell";
  EXPECT_EQ(lines_of(read_file(in("sweep/runs.csv"))).size(), 5u) << "2 rows x 2 repeats";
  ASSERT_TRUE(succeeded(run({"report", in("sweep").string(), "--csv"})));
  EXPECT_EQ(read_file(in("sweep/report/table.csv")), read_file(in("sweep/table.csv")));
  EXPECT_EQ(read_file(in("sweep/report/runs.csv")), read_file(in("sweep/runs.csv")));
}

TEST_F(Sweep, RowsHaveTheColumnsOfTheStudies) {
  ASSERT_TRUE(succeeded(run(sweep({"loader.workers=0,1"}))));
  const Json json = record();
  const Json& cells = json["cells"];
  for (const Json& cell : cells) {
    const Json& one = cell["runs"][0];
    const Json s = summary("sweep/runs/" + one["run"].get<std::string>());
    EXPECT_NEAR(one["epoch_s"], 200 / s["images_per_s"].get<double>(), 1e-9);
    EXPECT_EQ(one["host_bytes"], s["peak_rss_bytes"]);
    EXPECT_GT(one["cpu_utilization"], 0.0);
    EXPECT_LE(one["cpu_utilization"], 1.01);
    EXPECT_TRUE(one["peak_device_bytes"].is_null()) << "no device, no memory of it";
  }
  EXPECT_EQ(cells[0]["runs"][0]["speedup"], 1.0);
  EXPECT_NEAR(cells[1]["runs"][0]["speedup"],
              cells[1]["runs"][0]["images_per_s"].get<double>() /
                  cells[0]["runs"][0]["images_per_s"].get<double>(),
              1e-9);
}

TEST_F(Sweep, EveryNumberOfASummaryIsAMetric) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  const Json s = summary("run");
  std::string names;
  for (const auto& [name, value] : s.items()) {
    if (value.is_number()) names += (names.empty() ? "" : ",") + name;
    if (!value.is_object()) continue;
    for (const auto& [part, number] : value.items())
      if (number.is_number()) names += "," + name + "." + part;
  }
  ASSERT_NE(names.find("spans."), std::string::npos) << names;
  // The metrics are read before the repeats.
  EXPECT_TRUE(refused(run(sweep({"loader.workers=0,1", "--metric", names, "--repeats", "0"})), 2,
                      {"--repeats 0"}));
}

TEST_F(Sweep, AMetricThatTheRunsLackIsNamed) {
  EXPECT_TRUE(refused(run(sweep({"loader.workers=0,1", "--metric", "top1"})), 2,
                      {"--metric top1", "has no such number"}, false))
      << "a simulated device has no accuracy";
}

TEST_F(Sweep, AccuracyIsAMetric) {
  MILLRACE_NEEDS_TORCH();
  const Result result = run({"sweep", "mnist-lenet-plain", "data.path=" + data(), "train.threads=1",
                             "loader.batch=20", "train.epochs=1", "train.lr=0,0.02", "--metric",
                             "top1,test_loss,spans.forward", "--repeats", "2", "--run",
                             in("sweep").string(), "--json"});
  ASSERT_TRUE(succeeded(result));
  const Json json = parse_json(result.out);
  const Json& one = json["cells"][1]["comparisons"];
  const auto top1 = [&](int cell, int run) {
    return json["cells"][cell]["runs"][run]["top1"].get<double>();
  };
  EXPECT_NEAR(one["top1"]["difference"], (top1(1, 0) - top1(0, 0) + top1(1, 1) - top1(0, 1)) / 2,
              1e-12);
  EXPECT_FALSE(one["top1"].contains("ratio"));
  EXPECT_LT(one["test_loss"]["ratio"], 1.0) << "training helps";
  EXPECT_GT(one["spans.forward"]["ratio"], 0.0);
  EXPECT_EQ(json["metric"], "top1");
}

TEST_F(Sweep, EachRepeatHasAFoldOfItsOwn) {
  MILLRACE_NEEDS_TORCH();
  const Arguments folds{"sweep",           "mnist-lenet-plain",  "data.path=" + data(),
                        "loader.batch=20", "train.lr=0.01,0.05", "train.epochs=1",
                        "sweep.folds=3",   "--metric",           "top1,images_per_s",
                        "--run",           in("sweep").string()};
  const Result result = run(folds);
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("3 folds share"), std::string::npos) << result.out;
  const Json json = parse_json(read_file(in("sweep/sweep.json")));
  EXPECT_EQ(json["repeats"], 3);
  std::vector<double> differences;
  for (std::size_t repeat = 0; repeat < 3; ++repeat) {
    double top1[2];
    for (const std::size_t cell : {0, 1}) {
      const Json& one = json["cells"][cell]["runs"][repeat];
      const std::string name = one["run"];
      top1[cell] = one["top1"];
      const std::string config = read_file(in("sweep/runs") / name / "config.toml");
      EXPECT_NE(config.find("fold = \"" + std::to_string(repeat + 1) + "/3\""), config.npos)
          << name;
    }
    differences.push_back(top1[1] - top1[0]);
  }
  // Student's interval of three repeats, wider by what the folds share.
  const double mean = (differences[0] + differences[1] + differences[2]) / 3;
  double squares = 0;
  for (const double one : differences) squares += (one - mean) * (one - mean);
  constexpr double kStudent = 4.302653;  // 2 degrees of freedom, 95%
  const Json& compared = json["cells"][1]["comparisons"]["top1"];
  EXPECT_NEAR(compared["high"].get<double>() - compared["low"].get<double>(),
              2 * kStudent * std::sqrt(squares / 2 * (1.0 / 3 + 1.0 / 2)), 1e-6);
  EXPECT_TRUE(refused(run(folds + Arguments{"--repeats", "auto"}), 2, {"sweep.folds", "auto"}));
  EXPECT_TRUE(refused(run(folds + Arguments{"data.fold=1/3"}), 2, {"sweep.folds", "data.fold"}));
}

TEST_F(Sweep, RunsMayStopEarly) {
  MILLRACE_NEEDS_TORCH();
  // Without learning nothing improves, so that patience alone decides.
  const Result result = run(
      {"sweep", "mnist-lenet-plain", "data.path=" + data(), "train.threads=1", "train.lr=0",
       "loader.batch=20", "train.epochs=9", "eval.every=1", "train.early_stopping.metric=top1",
       "train.early_stopping.patience=2,4", "--metric", "epochs", "--run", in("sweep").string()});
  ASSERT_TRUE(succeeded(result));
  std::map<int, int> epochs;
  for (const auto& folder : run_folders()) {
    const Json s = summary("sweep/runs/" + folder);
    epochs[s["early_stopping"]["patience"]] = s["epochs"];
  }
  EXPECT_EQ(epochs, (std::map<int, int>{{2, 3}, {4, 5}}));
}

TEST_F(Sweep, TwoRecipesAreRefused) {
  EXPECT_TRUE(
      refused(run(sweep({"overhead", "loader.workers=0,1"})), 2, {"mnist-lenet", "overhead"}));
}

TEST_F(Sweep, FiveRepeatsHaveAVerdictOfTheMetric) {
  const Result result = run(sweep({"simulated.update_ms=0.5,10", "--repeats", "5"}));
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("verdict"), std::string::npos) << result.out;
  const Json json = record();
  EXPECT_TRUE(json["cells"][0]["comparison"].is_null());
  const Json& comparison = json["cells"][1]["comparison"];
  EXPECT_EQ(comparison["verdict"], "slower") << "20 times as long a step: " << comparison;
  EXPECT_LT(comparison["high"], 1.0);
  for (const Json& one : json["cells"][1]["runs"]) EXPECT_TRUE(one["noise"].contains("steal"));
  const Result again =
      run({"sweep", "--resume", "--run", in("sweep").string(), "--metric", "update_s", "--json"});
  ASSERT_TRUE(succeeded(again));
  const Json by_time = parse_json(again.out);
  EXPECT_EQ(by_time["cells"][1]["comparison"]["verdict"], "slower");
  EXPECT_GT(by_time["cells"][1]["comparison"]["low"], 1.0) << "of a duration, more is slower";
}

TEST_F(Sweep, PairedValuesGoTogether) {
  ASSERT_TRUE(
      succeeded(run(sweep({"loader.workers=0,1", "loader.prefetch=2,3", "--design", "paired"}))));
  std::set<std::pair<int, int>> seen;
  for (const auto& folder : run_folders()) {
    const Json s = summary("sweep/runs/" + folder);
    seen.insert({s["workers"].get<int>(), s["prefetch"].get<int>()});
  }
  EXPECT_EQ(seen, (std::set<std::pair<int, int>>{{0, 2}, {1, 3}}));
}

TEST_F(Sweep, ListedCombinationsAreTheRows) {
  const Result result = run(sweep({"--cell", "", "--cell", "loader.workers=0 loader.prefetch=3"}));
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("(recipe)"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("loader.workers=0 loader.prefetch=3"), std::string::npos);
  EXPECT_EQ(record()["cells"].size(), 2u);
  EXPECT_EQ(run_folders().size(), 2u);
  EXPECT_TRUE(refused(run(sweep({"loader.workers=0,1", "--cell", "seed=1"})), 2,
                      {"loader.workers has 2 values beside --cell"}));
}

TEST_F(Sweep, CellTakesOneArgument) {
  const Result result =
      run(sweep({"--cell", "loader.workers=0", "--cell", "loader.workers=1", "train.steps=3"}));
  ASSERT_TRUE(succeeded(result));
  ASSERT_EQ(record()["cells"].size(), 2u) << "train.steps=3 applies to both rows";
  for (const auto& folder : run_folders()) EXPECT_EQ(summary("sweep/runs/" + folder)["steps"], 3);
}

TEST_F(Sweep, APilotFixesTheRepeats) {
  const Result result =
      run(sweep({"simulated.update_ms=2,4", "sweep.margin=1", "--repeats", "auto"}));
  ASSERT_TRUE(succeeded(result));
  const Json json = record();
  EXPECT_EQ(json["auto"]["pilot"], 5);
  const std::size_t repeats = json["auto"]["repeats"];
  EXPECT_EQ(json["repeats"], repeats);
  EXPECT_EQ(run_folders().size(), 2 * repeats);
  const Result limited = run(sweep({"loader.workers=0,1", "sweep.margin=1e-5",
                                    "sweep.most_repeats=6", "--repeats", "auto", "--json"}));
  ASSERT_TRUE(succeeded(limited));
  const Json most = parse_json(limited.out);
  EXPECT_EQ(most["repeats"], 6);
  EXPECT_EQ(most["auto"]["suffices"], false);
  EXPECT_GT(most["auto"]["smallest_detectable"], 1e-5);
}

TEST_F(Sweep, EqualCombinationsAreRunEach) {
  ASSERT_TRUE(succeeded(run(sweep({"loader.workers=1,1", "--repeats", "2"}))));
  EXPECT_EQ(run_folders().size(), 4u) << "an A/A study";
  const Result again = run({"sweep", "--resume", "--run", in("sweep").string()});
  ASSERT_TRUE(succeeded(again));
  EXPECT_EQ(run_folders().size(), 4u);
}

TEST_F(Sweep, EarlierSweepIsMovedAside) {
  ASSERT_TRUE(succeeded(run(sweep({"loader.workers=0,1"}))));
  ASSERT_TRUE(succeeded(run(sweep({"loader.workers=0,1,2"}))));
  EXPECT_EQ(record()["cells"].size(), 3u);
  EXPECT_EQ(parse_json(read_file(in("sweep.1/sweep.json")))["cells"].size(), 2u);
}

}  // namespace
}  // namespace millrace::program_test
