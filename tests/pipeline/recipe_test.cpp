// Tests loading, overriding and checking recipes.
#include "millrace/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "millrace/error.h"
#include "recipe/key_hints.h"
#include "recipe/recipe_file.h"

namespace millrace::pipeline {
namespace {

namespace fs = std::filesystem;

const std::vector<OpDeclaration>& ops() {
  static const std::vector<OpDeclaration> all{
      {"spin", "turns", true, {Param::numbers("degrees", {0}, {1, 2}, -360, 360, "angle")}},
      {"trim", "cuts", false, {Param::integer("size", 8, 1, 100, "pixels")}}};
  return all;
}

class RecipeTest : public testing::Test {
 protected:
  RecipeTest()
      : folder_(fs::temp_directory_path() / ("recipe_test_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~RecipeTest() override { fs::remove_all(folder_); }

  Recipe load(const std::string& toml, const std::vector<std::string>& overrides = {}) {
    const fs::path file = folder_ / "given.toml";
    std::ofstream(file) << toml;
    return Recipe::load(ops(), file.string(), overrides, {});
  }
  /// Returns the message that loading throws, hint included.
  std::string refusal(const std::string& toml, const std::vector<std::string>& overrides = {}) {
    try {
      load(toml, overrides);
    } catch (const UsageError& error) {
      return std::string(error.what()) + " | " + error.hint();
    }
    return "accepted";
  }

  fs::path folder_;
};

const char* kChain = R"(
[loader]
workers = 3
[[augment]]
op = "spin"
degrees = 15
[[augment]]
op = "trim"
)";

TEST_F(RecipeTest, FileThenOverridesThenDefaults) {
  const Recipe recipe =
      load(kChain, {"loader.batch=32", "augment.spin.degrees=[-5,20]", "train.lr=1e-3"});
  EXPECT_EQ(recipe.integer("loader.workers"), 3);
  EXPECT_EQ(recipe.integer("loader.batch"), 32);
  EXPECT_EQ(recipe.integer("loader.prefetch"), 4);
  EXPECT_EQ(recipe.number("train.lr"), 1e-3);
  EXPECT_EQ(recipe.name(), "given");
  ASSERT_EQ(recipe.augment().size(), 2u);
  EXPECT_EQ(recipe.augment()[0].params.numbers("degrees"), (std::vector<double>{-5, 20}));
}

TEST_F(RecipeTest, AWordMayStandInANumbersPlace) {
  for (const Recipe& recipe :
       {load(kChain, {"loader.workers=auto"}), load("[loader]\nworkers = \"auto\"\n")}) {
    EXPECT_EQ(recipe.at("loader.workers"), Value("auto"));
    const Recipe again = load(recipe.to_toml());
    EXPECT_EQ(again.at("loader.workers"), Value("auto"));
  }
  EXPECT_NE(refusal(kChain, {"loader.batch=auto"}).find("whole number"), std::string::npos);
}

TEST_F(RecipeTest, WhatItWritesIsTheSameRecipe) {
  const Recipe recipe = load(
      kChain, {"augment+=spin{degrees=[1,2],id=again}@before:trim", "output.mean=[0.1,0.2,0.3]",
               "augment.trim.enabled=false", "data.path=a \"b\" \\ c"});
  const Recipe again = load(recipe.to_toml());
  EXPECT_EQ(again.to_toml(), recipe.to_toml());
  EXPECT_EQ(again.text("data.path"), "a \"b\" \\ c");
  EXPECT_EQ(again.name(), "given");
}

TEST_F(RecipeTest, AppendedOpsGetIdsAndPlaces) {
  const Recipe recipe =
      load(kChain, {"augment+=spin{degrees=3}", "augment+=trim{size=4}@after:spin"});
  std::vector<std::string> ids;
  for (const auto& op : recipe.augment()) ids.push_back(op.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"spin", "trim#2", "trim", "spin#2"}));
  EXPECT_EQ(recipe.augment()[1].params.integer("size"), 4);
}

TEST_F(RecipeTest, EvaluationKeepsWhatDrawsNothing) {
  ASSERT_EQ(load(kChain).eval_augment().size(), 1u);
  EXPECT_EQ(load(kChain).eval_augment()[0].op, "trim");
  EXPECT_TRUE(load(std::string("[eval]\naugment = []\n") + kChain).eval_augment().empty());
  EXPECT_EQ(load(std::string(kChain) + "[[eval.augment]]\nop = \"spin\"\n").eval_augment()[0].op,
            "spin");
}

TEST_F(RecipeTest, RefusalsSayWhereAndWhatWasMeant) {
  EXPECT_NE(refusal("[loader]\nworker = 1\n")
                .find("given.toml:2: unknown key loader.worker | did you mean loader.workers?"),
            std::string::npos);
  EXPECT_NE(refusal("", {"loader.wrokers=1"}).find("did you mean loader.workers?"),
            std::string::npos);
  EXPECT_NE(refusal("", {"loader.workers=-1"})
                .find("expects auto, or a whole number from 0 to 256, not -1"),
            std::string::npos);
  EXPECT_NE(refusal("", {"loader.workers=two"}).find("not two"), std::string::npos);
  EXPECT_NE(refusal("", {"loader.workers=1.5"}).find("not 1.5"), std::string::npos);
  EXPECT_NE(refusal("[loader]\nworkers = \"two\"\n").find("given.toml:2"), std::string::npos);
  EXPECT_NE(refusal("", {"train.lr=nan"}).find("expects a number"), std::string::npos);
  EXPECT_NE(refusal("", {"output.mean=[1,x]"}).find("expects a list of numbers"),
            std::string::npos);
  EXPECT_NE(refusal("", {"data.reader=ids"}).find("did you mean idx?"), std::string::npos);
  EXPECT_NE(refusal(kChain, {"augment.spni.degrees=1"}).find("did you mean augment.spin.NAME?"),
            std::string::npos);
  EXPECT_NE(refusal(kChain, {"augment.spin.degree=1"}).find("did you mean augment.spin.degrees?"),
            std::string::npos);
  EXPECT_NE(refusal(kChain, {"augment+=spon"}).find("did you mean spin?"), std::string::npos);
  EXPECT_NE(refusal(kChain, {"augment+=spin@before:nothing"}).find("no such place"),
            std::string::npos);
  EXPECT_NE(refusal("[[augment]]\nop = \"spin\"\nangle = 3\n")
                .find("given.toml:3: spin has no parameter angle"),
            std::string::npos);
  EXPECT_NE(refusal("[[augment]]\nop=\"spin\"\nid=\"a\"\n[[augment]]\nop=\"trim\"\nid=\"a\"\n")
                .find("two augmentations"),
            std::string::npos);
  EXPECT_NE(refusal(kChain, {"augment+=spin{id=}"}).find("non-empty"), std::string::npos);
  EXPECT_NE(refusal(kChain, {"augment+=spin{id=trim}"}).find("must be unused"), std::string::npos);
  EXPECT_NE(refusal("[loader\n").find("given.toml:1"), std::string::npos);
  EXPECT_NE(refusal("", {"loader"}).find("key=value"), std::string::npos);
}

TEST_F(RecipeTest, UnitsAreConvertedToTheKeysOwn) {
  const auto number = [&](const std::string& text) {
    const std::string key = text.substr(0, text.find('='));
    return load("", {text}).number(key);
  };
  for (const char* text : {"5", "5MB/s", "5 MB/s", "5000kB/s", "5000KB/s", "0.005GB/s"})
    EXPECT_EQ(number(std::string("data.storage.bandwidth=") + text), 5) << text;
  EXPECT_EQ(number("data.storage.bandwidth=5MiB/s"), 5.24288);
  for (const char* text : {"20", "20ms", "20 ms", "0.02s", "20000us", "20000µs"})
    EXPECT_EQ(number(std::string("data.storage.latency=") + text), 20) << text;
  EXPECT_EQ(number("train.timeout=5min"), 300);
  EXPECT_EQ(number("data.storage.iops=200reads/s"), 200);
  EXPECT_EQ(load("", {"loader.max_bytes=2GiB"}).integer("loader.max_bytes"), 2LL << 30);
  EXPECT_EQ(load("", {"loader.max_bytes=1.5kB"}).integer("loader.max_bytes"), 1500);
  EXPECT_EQ(load("[data.storage]\nlatency = \"0.02s\"\n").number("data.storage.latency"), 20);
  // One row of a sweep: config.toml holds the bare number.
  EXPECT_EQ(load("", {"data.storage.bandwidth=5MB/s"}).to_toml(),
            load("", {"data.storage.bandwidth=5"}).to_toml());
}

TEST_F(RecipeTest, AUnitOfAnotherKindIsRejected) {
  for (const char* text :
       {"data.storage.bandwidth=5MB", "data.storage.bandwidth=5Mb/s", "data.storage.bandwidth=5ms",
        "data.storage.latency=5reads/s", "loader.batch=64MB", "train.lr=1ms",
        "loader.max_bytes=0.5B", "data.storage.latency=ms"})
    EXPECT_NE(refusal("", {text}).find(" expects "), std::string::npos) << text;
  EXPECT_NE(refusal("", {"data.storage.latency=5MB"}).find(" in ms, not 5MB"), std::string::npos);
  EXPECT_NE(refusal("", {"data.storage.latency=5MB"}).find("units: ns, us, ms, s, min, h"),
            std::string::npos);
  EXPECT_NE(refusal("[data.storage]\nlatency = \"5\"\n"), "accepted") << "a text without a unit";
}

TEST_F(RecipeTest, TheLastPartOfAKeyIsEnoughForAHint) {
  const auto hint = [&](const std::string& key) {
    const std::string text = refusal("", {key + "=1"});
    return text.substr(text.find("did you mean"));
  };
  for (const auto& [given, meant] :
       std::vector<std::pair<std::string, std::string>>{{"workers", "loader.workers"},
                                                        {"epochs", "train.epochs"},
                                                        {"wrokers", "loader.workers"},
                                                        {"train.workers", "loader.workers"},
                                                        {"bnch.epochs", "bench.epochs"},
                                                        {"tain.epochs", "train.epochs"},
                                                        {"on_error", "loader.on_error"},
                                                        {"max_pixels", "data.max_pixels"}})
    EXPECT_EQ(hint(given), "did you mean " + meant + "?") << given;
}

TEST_F(RecipeTest, NamesOfOtherTrainersAreAnsweredWithTheKey) {
  const auto answer = [&](const std::string& key) { return refusal("", {key + "=1"}); };
  for (const auto& [given, meant] : std::vector<std::pair<std::string, std::string>>{
           {"num_workers", "loader.workers"},
           {"batch_size", "loader.batch"},
           {"lr", "train.lr"},
           {"learning-rate", "train.lr"},
           {"max_epochs", "train.epochs"},
           {"prefetch_factor", "loader.prefetch"},
           {"train.batch_size", "loader.batch"},
           {"weight_decay", "train.weight_decay"},
           {"arch", "model.name"},
           {"data_dir", "data.path"},
           {"gradient_accumulation_steps", "train.accumulate"}})
    EXPECT_NE(answer(given).find("did you mean " + meant + "?"), std::string::npos)
        << answer(given);
  EXPECT_NE(answer("pin_memory").find("leave it out"), std::string::npos) << answer("pin_memory");
  EXPECT_NE(answer("output_dir").find("--run DIR"), std::string::npos) << answer("output_dir");
  for (const char* ranks : {"world_size", "nproc_per_node"})
    EXPECT_NE(answer(ranks).find("train.strategy=ddp train.ranks=N"), std::string::npos)
        << answer(ranks);
  EXPECT_NE(answer("num_nodes").find("srun"), std::string::npos) << answer("num_nodes");
}

TEST_F(RecipeTest, EveryFamiliarNameLeadsToAKey) {
  std::vector<std::string> names;
  for (const Param& key : recipe_keys()) names.push_back(key.name);
  int keys = 0;
  for (const recipe::FamiliarName& familiar : recipe::familiar_names()) {
    if (!recipe::is_key(familiar.answer)) continue;
    ++keys;
    EXPECT_NE(std::find(names.begin(), names.end(), familiar.answer), names.end())
        << familiar.name << " leads to " << familiar.answer;
  }
  EXPECT_GE(keys, 50);
}

TEST_F(RecipeTest, BracesThatTheShellTookApartAreToBeQuoted) {
  EXPECT_NE(refusal(kChain, {"augment+=spindegrees=3", "augment+=spinid=a"})
                .find("quote the word: 'augment+=spin{NAME=VALUE,NAME=VALUE}'"),
            std::string::npos);
}

TEST(RecipeKeys, EachRoomsListIsJoinedOnce) {
  std::vector<std::string> names;
  bool sections = false;
  for (const Param& key : recipe_keys()) {
    names.push_back(key.name);
    sections |= key.name.find('.') != std::string::npos;
    EXPECT_FALSE(sections && key.name.find('.') == std::string::npos)
        << key.name << " would fall into the section before it";
    EXPECT_FALSE(key.help.empty()) << key.name;
  }
  std::vector<std::string> once = names;
  std::sort(once.begin(), once.end());
  EXPECT_EQ(std::adjacent_find(once.begin(), once.end()), once.end()) << "declared twice";
  for (const char* key :
       {"seed", "data.reader", "loader.workers", "resample", "output.mean", "model.name",
        "train.lr", "eval.split", "bench.epochs", "sweep.margin", "debug.log_ms"})
    EXPECT_TRUE(std::binary_search(once.begin(), once.end(), key)) << key;
}

TEST_F(RecipeTest, ShippedRecipesAreFoundByName) {
  std::ofstream(folder_ / "tiny.toml") << "seed = 9\n";
  const std::vector<fs::path> folders{folder_};
  EXPECT_EQ(Recipe::load(ops(), "tiny", {}, folders).integer("seed"), 9);
  try {
    Recipe::load(ops(), "tinny", {}, folders);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(error.hint().find("did you mean tiny?"), std::string::npos);
  }
}

TEST_F(RecipeTest, AWordThatIsNoRecipeIsAnsweredByWhatItIs) {
  std::ofstream(folder_ / "tiny.toml") << "seed = 9\n[model]\nname = \"vgg19\"\n";
  const std::vector<fs::path> folders{folder_};
  const auto answer = [&](const std::string& word) {
    try {
      Recipe::load(ops(), word, {}, folders);
    } catch (const UsageError& error) {
      return std::string(error.what()) + " | " + error.hint();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(answer("resnet18"),
            "resnet18 is neither a recipe file nor a shipped recipe | it is a model: give a "
            "recipe, then model.name=resnet18; shipped: tiny");
  EXPECT_EQ(answer("VGG-19"),
            "VGG-19 is neither a recipe file nor a shipped recipe | it is the model of tiny; or "
            "give a recipe, then model.name=vgg19; shipped: tiny");
  EXPECT_EQ(answer(folder_.string()),
            folder_.string() +
                " is a directory, not a recipe | a data set? give a recipe, then "
                "data.path=" +
                folder_.string() + "; shipped: tiny");
  EXPECT_EQ(answer("mine.toml"),
            "mine.toml: no such file | give the path of a TOML file, or a shipped recipe; shipped: "
            "tiny");
  EXPECT_EQ(answer("Tiny"),
            "Tiny is neither a recipe file nor a shipped recipe | did you mean tiny? shipped: "
            "tiny");
  EXPECT_EQ(answer("something-else"),
            "something-else is neither a recipe file nor a shipped recipe | shipped: tiny");
}

TEST(Nearest, MeansTheSameBeforeItIsSpeltAlike) {
  const std::vector<std::string> ops{"random_rotation", "hflip",          "vflip",
                                     "trivial_augment", "random_erasing", "color_jitter"};
  for (const auto& [given, meant] :
       std::vector<std::pair<std::string, std::string>>{{"RandomHorizontalFlip", "hflip"},
                                                        {"VerticalFlip", "vflip"},
                                                        {"TrivialAugmentWide", "trivial_augment"},
                                                        {"ColorJitter", "color_jitter"},
                                                        {"Cutout", "random_erasing"},
                                                        {"hflop", "hflip"}})
    EXPECT_EQ(base::nearest(given, ops), meant) << given;
  const std::vector<std::string> optimizers{"sgd", "adam", "adamw"};
  EXPECT_EQ(base::nearest("AdamW", optimizers), "adamw");
  const std::vector<std::string> kinds{"pixel", "geometric"};
  EXPECT_EQ(base::nearest("warp", kinds), "geometric");
}

TEST(TomlDepth, CountsWhatNestsAndNothingElse) {
  const std::string dots(200, '.');
  const std::string three(3, '\'');
  for (const std::string& flat :
       {"# " + dots, "a = \"" + dots + "\"", "a = '" + dots + "'", "a = \"\\\"" + dots + "\"",
        "a = \"\"\"\n\"" + dots + "\\\"\"\"\n\"\"\"", "a = " + three + "\n''" + dots + three,
        "a = [" + std::string(300, ' ') + "1.5, 1.5, 1.5]"}) {
    EXPECT_EQ(recipe::line_nested_too_deep(flat + "\n"), 0u) << flat;
    const auto lines = static_cast<std::size_t>(std::count(flat.begin(), flat.end(), '\n'));
    EXPECT_EQ(recipe::line_nested_too_deep(flat + "\n" + dots), lines + 2) << flat;
  }
  std::string numbers = "a = [";
  for (int i = 0; i < 1000; ++i) numbers += "1.5, ";
  EXPECT_EQ(recipe::line_nested_too_deep(numbers + "1]"), 0u);
  std::string tables;
  for (int i = 0; i < 1000; ++i) tables += "[a.b.c]\nd.e = {f = [1.0]}\n";
  EXPECT_EQ(recipe::line_nested_too_deep(tables), 0u);
  EXPECT_EQ(recipe::line_nested_too_deep("a = \"" + dots), 0u) << "ends where the text ends";
}

TEST_F(RecipeTest, TextsAreUtf8AndComeBack) {
  for (const std::string path : {"a\x7f", "\xc3\xa9", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf", "a\tb"})
    EXPECT_EQ(load(load("", {"data.path=" + path}).to_toml()).text("data.path"), path);
  for (const std::string path : {"\xff", "\xc3", "\xc0\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
                                 "\xf4\x90\x80\x80", "\xc3\xa9\x80", "\xf0\x90\x80"})
    EXPECT_NE(refusal("", {"data.path=" + path}).find("not UTF-8"), std::string::npos) << path;
  EXPECT_NE(refusal("", {"augment+=spin{id=\xff}"}).find("UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace millrace::pipeline
