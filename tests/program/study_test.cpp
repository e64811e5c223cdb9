// Study files: the shipped ones print their tables with the sources' figures, and rows that cannot
// run print why.
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class Studies : public ProgramTest {
 protected:
  /// Returns options for a terminal of 80 columns, with time for a study.
  static RunOptions terminal() {
    RunOptions options;
    options.env = {{"COLUMNS", "80"}};
    options.timeout_s = 280;
    return options;
  }
  Result study(const std::string& file, const Arguments& more = {}) {
    return run(Arguments{"sweep", file, "--run", in("sweep").string()} + more, terminal());
  }
  Json record() const { return parse_json(read_file(in("sweep/sweep.json"))); }
};

/// A shipped study, its number of rows, and figures of its source as the table shows them.
struct Shipped {
  const char* name;
  std::size_t rows;
  std::vector<const char*> source;

  friend void PrintTo(const Shipped& shipped, std::ostream* out) { *out << shipped.name; }
};

class ShippedStudies : public Studies, public testing::WithParamInterface<Shipped> {
 protected:
  void SetUp() override { MILLRACE_NEEDS_TORCH(); }
};

TEST_P(ShippedStudies, PrintItsTableWithTheSourcesFigures) {
  const Shipped& shipped = GetParam();
  const Result result = study(shipped.name, {"--short"});
  ASSERT_TRUE(succeeded(result));
  for (const char* figure : shipped.source)
    EXPECT_NE(result.out.find(fmt::format("({})", figure)), std::string::npos) << figure << " in\n"
                                                                               << result.out;
  EXPECT_NE(result.out.find("source: "), std::string::npos);
  EXPECT_NE(result.out.find("--short: "), std::string::npos) << "says that it is one";
  const Json json = record();
  ASSERT_EQ(json["cells"].size(), shipped.rows) << "--short drops no row";
  std::size_t ran = 0;
  for (const Json& cell : json["cells"]) {
    ran += cell["runs"].size();
    EXPECT_NE(cell["runs"].empty(), !cell.contains("refusal")) << cell["overrides"];
    EXPECT_NE(cell.value("refusal", "none given"), "");
  }
  EXPECT_GT(ran, 0u);
  for (const auto& line : lines_of(result.out)) {
    const bool may_name_a_path = line.find('/') != std::string::npos;
    EXPECT_TRUE(may_name_a_path || line.size() <= 80) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ShippedStudies,
    testing::Values(Shipped{"s0", 4, {"596", "275", "98.1%", "0.0609"}},
                    Shipped{"s1", 4, {"17.8", "23.6", "63.1%", "98.2%"}},
                    Shipped{"s2", 17, {"2671", "10105", "95%", "1186", "93.58%"}},
                    Shipped{"s3", 5, {"13.2", "6.5", "14%"}},
                    Shipped{"s4", 15, {"6.4", "0.5", "72.8", "160.9", "99.19%", "9 to 12"}}),
    [](const auto& shipped) { return std::string(shipped.param.name); });

TEST_F(Studies, RowsRunFixedKeysAndTheirOwn) {
  write_file(in("my.toml"), R"(
title = "Mine"
recipe = "mnist-lenet"
keys = "train.device=simulated simulated.update_ms=0.5 train.epochs=1 loader.batch=20"
repeats = "2"
metric = "wall_s"
columns = ["wall_s", "images_per_s"]
notes = ["a note of mine"]
[short]
keys = "train.steps=2"
[[row]]
name = "plain"
source = { wall_s = 12.5 }
[[row]]
name = "workers"
keys = "loader.workers=1"
[[row]]
name = "impossible"
keys = "loader.batch=100000"
[[row]]
name = "unknown"
keys = "loader.wrokers=1"
)");
  const Result result = study(in("my.toml").string(), {"data.path=" + data(), "seed=5"});
  ASSERT_TRUE(succeeded(result));
  for (const char* text : {"Mine\n", "total s (source)", "(12.5)", "wall_s ratio", "a note of mine",
                           "not run: a batch of 100000 is larger", "not run: loader.wrokers"})
    EXPECT_NE(result.out.find(text), std::string::npos) << text << " in\n" << result.out;
  const Json json = record();
  EXPECT_EQ(json["cells"][0]["runs"].size(), 2u) << "the file's repeats";
  EXPECT_EQ(json["cells"][0]["runs"][0]["seed"], 5) << "a key of all rows";
  EXPECT_TRUE(json["cells"][3]["runs"].empty());
  const auto workers = json["cells"][1]["runs"][0]["run"].get<std::string>();
  EXPECT_EQ(summary("sweep/runs/" + workers)["workers"], 1);
  EXPECT_EQ(summary("sweep/runs/" + workers)["steps"], 10);

  const Result again = run({"sweep", "--resume", "--run", in("sweep").string()}, terminal());
  ASSERT_TRUE(succeeded(again));
  EXPECT_EQ(again.out, result.out) << "finished runs are not repeated";
  ASSERT_TRUE(succeeded(run({"report", in("sweep").string()})));

  ASSERT_TRUE(succeeded(study(in("my.toml").string(), {"data.path=" + data(), "--short"})));
  EXPECT_EQ(record()["cells"].size(), 4u);
  const auto brief = record()["cells"][1]["runs"][0]["run"].get<std::string>();
  EXPECT_EQ(summary("sweep/runs/" + brief)["steps"], 2);
}

TEST_F(Studies, DataIsGeneratedWhereThereIsNone) {
  write_file(in("my.toml"), R"(
recipe = "mnist-lenet"
keys = "train.device=simulated simulated.update_ms=0.1 loader.batch=20 train.steps=2"
[data]
real = "nowhere"
make = "digits"
[short]
data = ["--train", "100", "--test", "20"]
[[row]]
name = "a"
)");
  const Result result = study(in("my.toml").string(), {"--short"});
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("data: generated digits (--train 100 --test 20)"), std::string::npos)
      << result.out;
  EXPECT_TRUE(fs::exists(in("sweep/data")));
  const auto name = record()["cells"][0]["runs"][0]["run"].get<std::string>();
  EXPECT_EQ(summary("sweep/runs/" + name)["dataset"]["samples"], 100);
}

TEST_F(Studies, OptionsThatDoNotGoWithAFileAreRefused) {
  EXPECT_TRUE(refused(run({"sweep", "s0", "loader.workers=0,1"}), 2,
                      {"loader.workers=0,1: a study's rows are in its file"}));
  EXPECT_TRUE(refused(run({"sweep", "s0", "--cell", "seed=1"}), 2, {"s0 has its own rows"}));
  EXPECT_TRUE(refused(run({"sweep", "mnist-lenet", "loader.workers=0,1", "--short"}), 2,
                      {"--short", "not a study file"}));
}

}  // namespace
}  // namespace millrace::program_test
