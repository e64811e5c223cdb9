// Every shipped recipe of a study starts on generated data and trains the model that it names.
#include <cmath>
#include <set>

#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

/// A recipe, the set that `data make` generates for it, and its model's number of parameters,
/// counted with torchvision and by hand rather than with this program.
struct Shipped {
  const char* recipe;
  const char* data;
  std::int64_t params;

  friend void PrintTo(const Shipped& shipped, std::ostream* out) { *out << shipped.recipe; }
};

constexpr Shipped kShipped[] = {
    {"mnist-lenet", "digits", 61'706},        {"mnist-lenet-plain", "digits", 60'074},
    {"mnist-mlp", "digits", 101'770},         {"mnist-simple-conv", "digits", 603'590},
    {"cifar10-lenet", "objects", 135'062},    {"cifar10-vgg", "objects", 20'200'906},
    {"cifar10-vgg19", "objects", 20'040'522}, {"cifar10-resnet50", "objects", 23'528'522},
};

class Recipes : public ProgramTest, public testing::WithParamInterface<Shipped> {
 protected:
  void SetUp() override { MILLRACE_NEEDS_TORCH(); }

  std::string made(const std::string& kind) {
    const std::string set = in(kind).string();
    if (fs::exists(set)) return set;
    EXPECT_TRUE(succeeded(run({"data", "make", kind, set, "--train", "40", "--test", "10", "-q"})));
    return set;
  }
  /// Arguments for two steps of eight images, then an evaluation of ten.
  Arguments short_form(const std::string& recipe, const std::string& data,
                       const Arguments& more = {}) {
    return Arguments{"train",           recipe,           "data.path=" + data,
                     "train.steps=2",   "loader.batch=8", "loader.workers=1",
                     "train.threads=1", "--run",          in("run").string()} +
           more;
  }
  /// Expects the records of such a run.
  void expect_two_steps(std::int64_t params, std::int64_t images = 16) const {
    const Json s = summary("run");
    EXPECT_EQ(s["steps"], 2);
    EXPECT_EQ(s["images"], images);
    EXPECT_EQ(s["params"], params);
    EXPECT_EQ(s["failed"], 0);
    for (const char* name : {"train_loss", "test_loss"}) {
      ASSERT_TRUE(s[name].is_number()) << name << ": " << s[name];
      EXPECT_TRUE(std::isfinite(s[name].get<double>())) << name;
      EXPECT_GT(s[name], 0.0) << name;
    }
    EXPECT_EQ(s["per_class"].size(), 10u);
  }
};

TEST_P(Recipes, TrainsOnGeneratedData) {
  const Shipped& shipped = GetParam();
  ASSERT_TRUE(succeeded(run(short_form(shipped.recipe, made(shipped.data)))));
  expect_two_steps(shipped.params);
}

INSTANTIATE_TEST_SUITE_P(All, Recipes, testing::ValuesIn(kShipped), [](const auto& name) {
  std::string text = name.param.recipe;
  std::erase(text, '-');
  return text;
});

std::set<std::string> shipped_files() {
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(MILLRACE_RECIPES))
    if (entry.is_regular_file()) files.insert(entry.path().stem().string());
  return files;
}

TEST_F(Recipes, EveryShippedOneIsTriedHere) {
  std::set<std::string> names{"cifar10-crop-flip", "overhead"};  // loader only
  names.insert("imagenet-rrc");                                  // PhotosTrainAModelForTheirSize
  names.insert({"coco-mosaic-640", "segmentation-512"});         // TargetsAreLoadedAndDrawn
  for (const Shipped& shipped : kShipped) names.insert(shipped.recipe);
  EXPECT_EQ(shipped_files(), names);
}

TEST_F(Recipes, TargetsAreLoadedAndDrawn) {
  const std::string set = in("boxes").string();
  ASSERT_TRUE(succeeded(
      run({"data", "make", "boxes", set, "--train", "20", "--test", "4", "--masks", "-q"})));
  const std::pair<std::string, Arguments> recipes[] = {
      {"coco-mosaic-640", {"data.path=" + set}},
      {"coco-mosaic-640", {"data.path=" + set, "data.reader=yolo"}},
      {"segmentation-512", {"data.path=" + set + "/images", "data.masks=" + set + "/masks"}}};
  for (const auto& [recipe, data] : recipes) {
    SCOPED_TRACE(recipe);
    const Result bench = run(Arguments{"bench", recipe, "loader.batch=4", "--json"} + data);
    ASSERT_TRUE(succeeded(bench));
    const int side = recipe.ends_with("640") ? 640 : 512;
    const Result drawn = run(Arguments{"inspect", recipe, "loader.batch=4", "--samples", "4",
                                       "--out", in("sheet.png").string()} +
                             data);
    ASSERT_TRUE(succeeded(drawn));
    EXPECT_NE(drawn.out.find(fmt::format("{}x{}", side, side)), std::string::npos) << drawn.out;
    EXPECT_TRUE(succeeded(run(Arguments{"inspect", recipe, "--eval", "--samples", "2", "--out",
                                        in("sheet.png").string()} +
                              data)));
  }
}

TEST_F(Recipes, TheirDefaultPathIsWhereDataMakeIsShownToWrite) {
  for (const Shipped& shipped : kShipped) {
    const std::string text =
        read_file(fs::path(MILLRACE_RECIPES) / (shipped.recipe + std::string(".toml")));
    EXPECT_NE(text.find(std::string("path = \"data/") + shipped.data + "\""), std::string::npos)
        << shipped.recipe;
  }
}

TEST_F(Recipes, PhotosTrainAModelForTheirSize) {
  write_photos(in("photos"), 2, 64);
  ASSERT_TRUE(succeeded(run(short_form("imagenet-rrc", in("photos").string(),
                                       {"eval.split=train", "loader.batch=2", "train.steps=1"}))));
  const Json s = summary("run");
  const auto classes = static_cast<std::int64_t>(s["dataset"]["classes"]);
  EXPECT_EQ(s["params"], 11'176'512 + 513 * classes) << "torchvision's ResNet-18";
}

TEST_F(Recipes, CifarComesAsAnImageFolderToo) {
  write_photos(in("photos"), 6, 32);
  ASSERT_TRUE(
      succeeded(run(short_form("cifar10-lenet", in("photos").string(),
                               {"data.reader=folder", "eval.split=train", "model.classes=0"}))));
  EXPECT_EQ(summary("run")["images"], 16);
  EXPECT_EQ(summary("run")["dataset"]["reader"], "folder");
}

/// The bits of the training do not depend on how a sample's elements lie in the batch.
TEST_F(Recipes, TrainOnPixelsAsOnPlanes) {
  const std::string data = made("objects");
  std::set<std::string> hashes;
  for (const char* layout : {"chw", "hwc"})
    for (const char* normalize : {"loader", "device"}) {
      fs::remove_all(in("run"));
      ASSERT_TRUE(
          succeeded(run(short_form("cifar10-lenet", data,
                                   {"model.ops=torch", std::string("output.layout=") + layout,
                                    std::string("output.normalize=") + normalize}))));
      hashes.insert(summary("run")["parameters_hash"].get<std::string>());
    }
  EXPECT_EQ(hashes.size(), 1u);
  const Json evaluation = parse_json(run({"eval", in("run").string(), "--json"}).out);
  EXPECT_EQ(evaluation["top1"], summary("run")["top1"]);
  EXPECT_TRUE(
      refused(run(short_form("cifar10-lenet", data,
                             {"model.ops=torch", "output.layout=hwc", "train.channels_last=off"})),
              2, {"output.layout=hwc with train.channels_last=off"}));
}

TEST_F(Recipes, DataParallel) {
  for (const char* recipe : {"mnist-lenet-plain", "cifar10-lenet"}) {
    const bool mnist = std::string(recipe).starts_with("mnist");
    ASSERT_TRUE(succeeded(run(short_form(recipe, made(mnist ? "digits" : "objects"),
                                         {"train.strategy=data_parallel", "train.replicas=2"}))));
    expect_two_steps(mnist ? 60'074 : 135'062);
    EXPECT_EQ(summary("run")["strategy"], "data_parallel");
  }
}

TEST_F(Recipes, Ddp) {
  for (const char* recipe : {"mnist-lenet", "cifar10-lenet"}) {
    const bool mnist = std::string(recipe).starts_with("mnist");
    ASSERT_TRUE(succeeded(
        run(Arguments{"launch", "-n", "2", "--"} +
            short_form(recipe, made(mnist ? "digits" : "objects"), {"train.strategy=ddp"}))));
    expect_two_steps(mnist ? 61'706 : 135'062);
    EXPECT_EQ(summary("run")["world_size"], 2);
  }
}

class RecipeBytes : public ProgramTest {};

/// Hashes of two epochs of 48 synthetic images in batches of 20. A change of one is a change of the
/// bytes that a recipe has always given: raise the version in augment/ops/builtin.cpp, and say so
/// in CHANGELOG.md.
TEST_F(RecipeBytes, AreWhatTheyHaveAlwaysBeen) {
  struct Golden {
    const char* recipe;
    const char* width;
    const char* height;
    const char* channels;
    const char* hash;
  };
  constexpr Golden kGolden[] = {
      {"cifar10-crop-flip", "32", "32", "3", "d7e0eb18add7dfe9"},
      {"cifar10-lenet", "32", "32", "3", "ed1beede82dde7e6"},
      {"cifar10-resnet50", "32", "32", "3", "24b37646dc414cc1"},
      {"cifar10-vgg", "32", "32", "3", "ed1beede82dde7e6"},
      {"cifar10-vgg19", "32", "32", "3", "d7e0eb18add7dfe9"},
      {"coco-mosaic-640", "300", "260", "3", "6e54b7951c95ed37"},
      {"imagenet-rrc", "300", "260", "3", "2e440cb8023d4347"},
      {"mnist-lenet", "28", "28", "1", "f2c99c33d911a3a9"},
      {"mnist-lenet-plain", "28", "28", "1", "160984fa223bd624"},
      {"mnist-mlp", "28", "28", "1", "81cf1d41264de5a4"},
      {"mnist-simple-conv", "28", "28", "1", "81cf1d41264de5a4"},
      {"overhead", "28", "28", "1", "a4cb9f9cf16f8ac3"},
      {"segmentation-512", "300", "260", "3", "8c081081637cdfe0"},
  };
  std::set<std::string> names;
  for (const Golden& golden : kGolden) {
    names.insert(golden.recipe);
    const Result result = run(
        {"bench", golden.recipe, "data.reader=synthetic", "data.masks=", "data.synthetic.count=48",
         std::string("data.synthetic.width=") + golden.width,
         std::string("data.synthetic.height=") + golden.height,
         std::string("data.synthetic.channels=") + golden.channels, "loader.batch=20",
         "loader.workers=1", "seed=7", "bench.epochs=2", "--hash", "--json"});
    ASSERT_TRUE(succeeded(result)) << golden.recipe;
    EXPECT_EQ(parse_json(result.out)["batch_hash"], golden.hash) << golden.recipe;
  }
  EXPECT_EQ(names, shipped_files());
}

}  // namespace
}  // namespace millrace::program_test
