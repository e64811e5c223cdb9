// Ablations: every combination once a block, one row each, and a failure that says where.
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
      run(sweep({"loader.workers=0,1", "augment.random_affine.enabled=true,false"}));
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
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto words = words_of(lines[header + 1 + i]);
    ASSERT_EQ(words.size(), 11u) << lines[header + 1 + i];
    EXPECT_EQ(words[0], cells[i].first);
    EXPECT_EQ(words[1], cells[i].second);
    EXPECT_GE(std::stod(words[4]), 0.5) << "update, ms a step";
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
  ASSERT_TRUE(succeeded(run(sweep({"augment+=random_crop{size=28,padding=2}"}))));
  EXPECT_EQ(record()["cells"].size(), 1u);
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
  EXPECT_TRUE(refused(run(sweep({"loader.workers=0,1", "--repeats", "0"})), 2, {"--repeats"}));
  EXPECT_FALSE(fs::exists(in("sweep")));
}

TEST_F(Sweep, TwoRecipesAreRefused) {
  EXPECT_TRUE(
      refused(run(sweep({"overhead", "loader.workers=0,1"})), 2, {"mnist-lenet", "overhead"}));
}

TEST_F(Sweep, EarlierSweepIsMovedAside) {
  ASSERT_TRUE(succeeded(run(sweep({"loader.workers=0,1"}))));
  ASSERT_TRUE(succeeded(run(sweep({"loader.workers=1"}))));
  EXPECT_EQ(record()["cells"].size(), 1u);
  EXPECT_EQ(parse_json(read_file(in("sweep.1/sweep.json")))["cells"].size(), 2u);
}

}  // namespace
}  // namespace millrace::program_test
