// Tests what the program says about its keys and recipes, and about options and words that people
// bring along from other trainers.
#include <cstdlib>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

class Keys : public ProgramTest {
 protected:
  static RunOptions at80() {
    RunOptions options;
    options.env = {{"COLUMNS", "80"}};
    return options;
  }
};

TEST_F(Keys, ListsEveryKeyWithDefaultUnitAndHelp) {
  const Result result = run({"keys"}, at80());
  ASSERT_TRUE(succeeded(result));
  for (const char* text :
       {"\nloader.workers = 2 threads\n    auto, or a whole number from 0 to 256\n",
        "\ndata.storage.bandwidth = 0.0 MB/s\n    a number from 0 to 1000000000 in MB/s\n",
        "\ntrain.lr = 0.01\n    a number of at least 0\n    learning rate: the peak of the"})
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
  for (const std::string& line : lines_of(result.out)) EXPECT_LE(line.size(), 80u) << line;

  const Json json = parse_json(run({"keys", "--json"}).out);
  EXPECT_EQ(json["command"], "keys");
  std::size_t listed = 0;
  for (const Json& key : json["keys"]) {
    const std::string name = key["key"];
    EXPECT_FALSE(key["help"].get<std::string>().empty()) << name;
    if (name.starts_with("augment.")) continue;
    ++listed;
    EXPECT_NE(("\n" + result.out).find("\n" + name + " = "), std::string::npos) << name;
  }
  EXPECT_GE(listed, 90u);
}

TEST_F(Keys, APrefixChoosesASectionAKeyOrAnAugmentation) {
  const auto all_names = [](const Arguments& prefixes) {
    std::vector<std::string> all;
    const Json json = parse_json(run(Arguments{"keys", "--json"} + prefixes).out);
    for (const Json& key : json["keys"]) all.push_back(key["key"]);
    return all;
  };
  const auto names = [&](const std::string& prefix) { return all_names({prefix}); };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("simulated"), Names{"simulated.update_ms"});
  EXPECT_EQ(names("train.step"), (Names{"train.steps", "train.step_epochs"}));
  EXPECT_EQ(names("train.steps"), Names{"train.steps"});
  EXPECT_EQ(names("lr"), Names{"train.lr"});
  EXPECT_EQ(names("augment.hflip"), Names{"augment.hflip.p"});
  EXPECT_EQ(all_names({"lr", "train.step", "train.steps"}),
            (Names{"train.lr", "train.steps", "train.step_epochs"}));
  const Result ops = run({"keys", "augment"});
  ASSERT_TRUE(succeeded(ops));
  EXPECT_NE(ops.out.find("augment.random_affine\n"), std::string::npos) << ops.out;
  EXPECT_TRUE(refused(run({"keys", "num_workers"}), 2, {"num_workers", "loader.workers"}));
  EXPECT_TRUE(refused(run({"keys", "loader.wrokers"}), 2, {"did you mean loader.workers?"}));
}

TEST_F(Keys, ARecipeIsPrintedWholeAndLoadsAsTheSame) {
  const Result printed = run({"recipe", "mnist-lenet", "loader.workers=1", "data.path=" + data(),
                              "augment.random_affine.degrees=33"},
                             at80());
  ASSERT_TRUE(succeeded(printed));
  EXPECT_NE(printed.out.find("\nworkers = 1\n"), std::string::npos);
  EXPECT_NE(printed.out.find("[threads] (default 2)\nworkers = 1\n"), std::string::npos)
      << printed.out;
  EXPECT_NE(printed.out.find("\ndegrees = [33.0]\n"), std::string::npos) << printed.out;
  write_file(in("mine.toml"), printed.out);
  const Result again = run({"recipe", in("mine.toml").string()}, at80());
  ASSERT_TRUE(succeeded(again));
  EXPECT_EQ(again.out, printed.out);

  const Result as_json = run({"recipe", "mnist-lenet", "loader.workers=1", "--json"});
  ASSERT_TRUE(succeeded(as_json));
  const Json json = parse_json(as_json.out);
  EXPECT_EQ(json["augment"][0]["op"], "random_affine");
  for (const Json& key : json["keys"]) {
    if (key["key"] == "loader.workers") {
      EXPECT_EQ(key["value"], 1);
    }
  }
}

TEST_F(Keys, RecipeWithoutANameListsTheShippedOnes) {
  const Result result = run({"recipe"});
  ASSERT_TRUE(succeeded(result));
  for (const char* name : {"mnist-lenet\n", "cifar10-crop-flip\n", "imagenet-rrc\n"})
    EXPECT_NE(("\n" + result.out).find(std::string("\n") + name), std::string::npos) << result.out;
}

TEST_F(Keys, OptionsOfOtherTrainersAreAnsweredWithTheKey) {
  EXPECT_TRUE(refused(run({"train", "mnist-lenet", "--workers", "4"}), 2,
                      {"--workers", "loader.workers=4"}));
  EXPECT_TRUE(refused(run({"train", "--workers", "4", "mnist-lenet"}), 2, {"loader.workers=4"}));
  EXPECT_TRUE(refused(run({"train", "mnist-lenet", "--epochs=3"}), 2, {"train.epochs=3"}));
  EXPECT_TRUE(refused(run({"bench", "mnist-lenet", "--batch-size=8"}), 2, {"loader.batch=8"}));
  EXPECT_TRUE(refused(run({"train", "mnist-lenet", "--output-dir", "x"}), 2, {"--run DIR"}));
  // An option that is nearly one of the command's own is not taken for a key.
  EXPECT_TRUE(refused(run({"train", "mnist-lenet", "--rum", "x"}), 2, {"did you mean --run?"}));
  EXPECT_TRUE(
      refused(run({"train", "mnist-lenet", "num_workers=4"}), 2, {"did you mean loader.workers?"}));
}

TEST_F(Keys, WordsThatTheShellOrSpacesTookApartAreExplained) {
  EXPECT_TRUE(refused(run({"bench", "mnist-lenet", "loader.workers", "=", "4"}), 2,
                      {"without spaces: loader.workers=4"}));
  EXPECT_TRUE(refused(run({"bench", "mnist-lenet", "loader.workers=", "4"}), 2,
                      {"without spaces: loader.workers=4"}));
  EXPECT_TRUE(refused(run({"bench", "mnist-lenet", "loader.workers", "=4"}), 2,
                      {"without spaces: loader.workers=4"}));
  EXPECT_TRUE(refused(run({"bench", "mnist-lenet", "workers", "4"}), 2, {"loader.workers=4"}));
  EXPECT_TRUE(refused(
      run({"bench", "mnist-lenet", "augment+=random_cropsize=24", "augment+=random_croppadding=2"}),
      2, {"quote the word: 'augment+=random_crop{"}));
  EXPECT_TRUE(refused(run({"bench", "mnist-lenet", "data.reader=tar", "data.path=s-000.tar",
                           "data.path=s-001.tar"}),
                      2, {"'data.path=shard-{000..003}.tar'"}));
}

TEST_F(Keys, AnUnknownWordIsNamedAloneAndFirst) {
  EXPECT_TRUE(refused(
      run({"data", "make", "digit", "x"}), 2,
      {"data make: unknown command: digit", "did you mean digits?", "millrace data make --help"}));
}

TEST_F(Keys, NoOptionTakesMoreThanOneWord) {
  const Result page = run({"completion", "man"});
  ASSERT_TRUE(succeeded(page));
  int options = 0;
  for (const std::string& line : lines_of(page.out)) {
    const bool is_option = line.starts_with(".B ") && line.find("\\-\\-") != std::string::npos;
    if (!is_option) continue;
    ++options;
    EXPECT_EQ(line.find("..."), std::string::npos) << line;
  }
  EXPECT_GT(options, 50);
}

TEST_F(Keys, CompletionOffersPrefixesOfKeys) {
  const Result words = run({"completion", "words", "millrace keys simul"});
  ASSERT_TRUE(succeeded(words));
  EXPECT_EQ(lines_of(words.out), (std::vector<std::string>{"simulated", "simulated.update_ms"}));
}

TEST_F(Keys, OneRowOfASweepHasOneSpelling) {
  ASSERT_TRUE(succeeded(run(simulated("units", {"data.storage.latency=0.001s"}))));
  EXPECT_NE(read_file(in("units") / "config.toml").find("\nlatency = 1.0\n"), std::string::npos);
}

}  // namespace
}  // namespace millrace::program_test
