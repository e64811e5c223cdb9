// Real training: it learns, its weights can be evaluated and loaded again, and it is reproducible.
#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class Training : public ProgramTest {
 protected:
  void SetUp() override { MILLRACE_NEEDS_TORCH(); }

  Json parameters(const std::string& name, const Arguments& more) {
    EXPECT_TRUE(succeeded(run(training(name, more))));
    const Json hash = summary(name)["parameters_hash"];
    EXPECT_TRUE(hash.is_string());
    return hash;
  }
};

TEST_F(Training, LearnsWhatCanBeLearnt) {
  ASSERT_TRUE(succeeded(run(training("run", {"train.epochs=4"}))));
  const auto epochs = parse_json_lines(read_file(in("run") / "metrics.jsonl"));
  ASSERT_EQ(epochs.size(), 4u);
  EXPECT_LT(epochs[3]["train_loss"].get<double>(), 0.5 * epochs[0]["train_loss"].get<double>());
  const Json s = summary("run");
  EXPECT_GE(s["top1"], 0.9);  // chance: 0.1
  EXPECT_GE(s["top5"], s["top1"]);
  double mean = 0;
  for (const auto& [name, accuracy] : s["per_class"].items()) mean += accuracy.get<double>() / 10;
  EXPECT_NEAR(mean, s["top1"].get<double>(), 1e-9);  // 6 test images per class
}

TEST_F(Training, ADivergedModelStopsTheRunAndLeavesTheLastGoodCheckpoint) {
  const Result result = run(training("run", {"train.lr=1e9", "train.checkpoint_every=1"}));
  EXPECT_TRUE(refused(result, 1, {"the loss is", "at step", "train.lr"}, /*alone=*/false));
  const Json s = summary("run");
  EXPECT_NE(s["error"].get<std::string>().find("at step"), std::string::npos);
  const std::uint64_t good = s["steps"];
  ASSERT_GT(good, 0u);
  EXPECT_EQ(fs::read_symlink(in("run") / "checkpoints" / "last"), "step-" + std::to_string(good));
  EXPECT_TRUE(succeeded(run({"eval", in("run").string()})));
}

TEST_F(Training, EvaluationMustSeeSamplesOfTheSameSize) {
  const Arguments crop{"augment+=random_crop{size=24}"};
  EXPECT_TRUE(refused(run(training("run", crop)), 2, {"24x24", "28x28", "eval.augment+="}));
  EXPECT_FALSE(fs::exists(in("run")));
  EXPECT_TRUE(
      succeeded(run(training("run", crop + Arguments{"eval.augment+=random_crop{size=24}"}))));
}

TEST_F(Training, TheSplitsMustHaveTheSameClasses) {
  write_photos(in("photos"), 4);
  fs::create_directories(in("photos") / "test");
  for (const char* name : {"bee", "cat"})
    fs::copy(in("photos") / "train" / name, in("photos") / "test" / name);
  const Result result =
      run({"train", "data.reader=folder", "data.path=" + in("photos").string(), "loader.batch=4",
           "model.name=lenet5_cifar", "--run", in("run").string()});
  EXPECT_TRUE(refused(result, 3, {"ape", "bee", "classes"}));
  EXPECT_FALSE(fs::exists(in("run")));
}

TEST_F(Training, EvalRepeatsTheRunsOwnEvaluation) {
  ASSERT_TRUE(succeeded(run(training("run", {"train.epochs=2"}))));
  const Json s = summary("run");
  for (const auto& what : {in("run"), in("run") / "checkpoints" / "last",
                           in("run") / "checkpoints" / "last" / "model.safetensors"}) {
    const Result result = run({"eval", what.string(), "--json"});
    ASSERT_TRUE(succeeded(result)) << what;
    const Json json = parse_json(result.out);
    EXPECT_EQ(json["top1"], s["top1"]);
    EXPECT_EQ(json["top5"], s["top5"]);
    EXPECT_EQ(json["per_class"], s["per_class"]);
    EXPECT_EQ(json["parameters_hash"], s["parameters_hash"]);
    EXPECT_NEAR(json["test_loss"].get<double>(), s["test_loss"].get<double>(), 1e-6);
  }
  const Result text = run({"eval", in("run").string(), "eval.split=train"});
  ASSERT_TRUE(succeeded(text));
  EXPECT_NE(text.out.find("200 train images"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("top-1"), std::string::npos) << text.out;
}

TEST_F(Training, CheckpointIsWholeAndLastNamesIt) {
  ASSERT_TRUE(succeeded(run(training("run"))));
  const fs::path checkpoints = in("run") / "checkpoints";
  EXPECT_TRUE(fs::is_regular_file(checkpoints / "step-10" / "model.safetensors"));
  EXPECT_EQ(fs::canonical(checkpoints / "last"), fs::canonical(checkpoints / "step-10"));
  EXPECT_TRUE(no_temporaries(in("run")));
}

TEST_F(Training, WeightsOfARunStartAnother) {
  const Json hash = parameters("first", {"train.epochs=2"});
  const std::string weights =
      "model.weights=" + (in("first") / "checkpoints/last/model.safetensors").string();
  // A learning rate of zero changes nothing.
  EXPECT_EQ(parameters("second", {weights, "train.lr=0", "train.steps=1"}), hash);
  const double learnt = parse_json_lines(read_file(in("first") / "metrics.jsonl"))[0]["train_loss"];
  EXPECT_LT(summary("second")["train_loss"].get<double>(), learnt);
}

TEST_F(Training, WeightsThatDontFitAreRefused) {
  ASSERT_TRUE(succeeded(run(training("run"))));
  const fs::path weights = in("run") / "checkpoints/last/model.safetensors";
  EXPECT_TRUE(
      refused(run(training("other", {"model.name=lenet5", "model.weights=" + weights.string()})), 3,
              {weights.string()}));
  cut(weights, 0.5);
  EXPECT_TRUE(
      refused(run({"eval", in("run").string()}), 3, {fs::canonical(weights).filename().string()}));
  write_file(weights, "no weights");
  EXPECT_TRUE(refused(run({"eval", in("run").string()}), 3, {"model.safetensors"}));
  fs::remove(weights);
  EXPECT_TRUE(refused(run({"eval", in("run").string()}), 3, {in("run").string()}));
}

TEST_F(Training, RepeatsItselfBitForBit) {
  const Json hash = parameters("first", {"seed=4"});
  EXPECT_EQ(parameters("second", {"seed=4"}), hash);
  EXPECT_EQ(read_file(in("first/checkpoints/last/model.safetensors")),
            read_file(in("second/checkpoints/last/model.safetensors")));
  EXPECT_NE(parameters("third", {"seed=5"}), hash);
}

TEST_F(Training, WorkersDoNotChangeTheResult) {
  const Json hash = parameters("inline", {"loader.workers=0"});
  EXPECT_EQ(parameters("one", {"loader.workers=1", "loader.prefetch=1"}), hash);
  EXPECT_EQ(parameters("three", {"loader.workers=3", "loader.grain=1"}), hash);
}

TEST_F(Training, EvaluatingOnTheWayDoesNotChangeTheResult) {
  EXPECT_EQ(parameters("each", {"train.epochs=2", "eval.every=1"}),
            parameters("end", {"train.epochs=2", "eval.every=0"}));
}

TEST_F(Training, ConfigOfARunRepeatsIt) {
  const Json hash = parameters("first", {"seed=6", "train.momentum=0.5", "augment+=hflip",
                                         "train.weight_decay=0.01", "train.nesterov=true"});
  ASSERT_TRUE(succeeded(
      run({"train", (in("first") / "config.toml").string(), "--run", in("second").string()})));
  EXPECT_EQ(summary("second")["parameters_hash"], hash);
  EXPECT_NE(parameters("third", {"seed=6"}), hash);
}

TEST_F(Training, StepsEndItEarly) {
  ASSERT_TRUE(succeeded(run(training("run", {"train.epochs=9", "train.steps=13"}))));
  const Json s = summary("run");
  EXPECT_EQ(s["steps"], 13);
  EXPECT_TRUE(s["top1"].is_number());
  EXPECT_TRUE(fs::exists(in("run") / "checkpoints" / "step-13" / "model.safetensors"));
}

TEST_F(Training, EvalOfASimulatedRunIsRefused) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  const Result result = run({"eval", in("run").string()});
  EXPECT_TRUE(refused(result, 3, {in("run").string()}));
}

TEST_F(Training, MissingDeviceIsExitFour) {
  if (fs::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a GPU";
  const Result result = run(training("run", {"train.device=cuda"}));
  EXPECT_TRUE(refused(result, 4, {"cuda"}));
  EXPECT_TRUE(refused(run(training("run", {"train.device=cuda", "train.strategy=data_parallel"})),
                      4, {"cuda"}));
  EXPECT_FALSE(fs::exists(in("run")));
}

TEST_F(Training, LevelsNormalisedOnTheDeviceChangeNothingButTheBytesSent) {
  const Arguments recipe{"output.mean=[0.1307]", "output.std=[0.3081]", "train.epochs=2"};
  const Arguments device = recipe + Arguments{"output.normalize=device"};
  ASSERT_TRUE(succeeded(run(training("loader", recipe))));
  ASSERT_TRUE(succeeded(run(training("device", device + Arguments{"--hash"}))));
  for (const char* key : {"parameters_hash", "train_loss", "test_loss", "top1", "per_class"})
    EXPECT_EQ(summary("device")[key], summary("loader")[key]) << key;

  // eval uses the run's recipe.
  const Result evaluated = run({"eval", in("device").string(), "--json"});
  ASSERT_TRUE(succeeded(evaluated));
  EXPECT_EQ(parse_json(evaluated.out)["test_loss"], summary("device")["test_loss"]);

  // The bytes are those that a bench of the recipe hashes.
  const Result benched = run(Arguments{"bench", "mnist-lenet-plain", "data.path=" + data(),
                                       "loader.batch=20", "bench.epochs=2", "--hash", "--json"} +
                             device);
  ASSERT_TRUE(succeeded(benched));
  EXPECT_EQ(parse_json(benched.out)["batch_hash"], summary("device")["batch_hash"]);
  EXPECT_EQ(parse_json(benched.out)["sample"]["dtype"], "u8");
}

TEST_F(Training, ANormalisationInTheMiddleOfARunStaysWhereItWas) {
  const Arguments device{"output.normalize=device", "train.epochs=2"};
  ASSERT_TRUE(succeeded(run(training("whole", device))));
  ASSERT_TRUE(succeeded(run(training("part", device + Arguments{"train.steps=7"}))));
  const Arguments resume{"train", "--resume", "--run", in("part").string()};
  EXPECT_TRUE(refused(run(resume + Arguments{"output.normalize=loader"}), 2, {"output.normalize"}));
  ASSERT_TRUE(succeeded(run(resume + Arguments{"train.steps=0"})));
  EXPECT_EQ(summary("part")["parameters_hash"], summary("whole")["parameters_hash"]);
}

TEST_F(Training, WhatADeviceCannotNormaliseIsRefused) {
  const Arguments device{"output.normalize=device"};
  EXPECT_TRUE(refused(run(training("run", device + Arguments{"output.dtype=f16"})), 2,
                      {"output.normalize=device", "output.dtype=f16"}));
  EXPECT_TRUE(refused(run(training("run", device + Arguments{"augment+=mixup"})), 2,
                      {"output.normalize=device", "mixup", "rounded"}));
  EXPECT_FALSE(fs::exists(in("run")));
  // CutMix only moves pixels: the losses are the same wherever normalisation happens.
  const Arguments cutmix{"augment+=cutmix", "train.steps=5"};
  ASSERT_TRUE(succeeded(run(training("loader", cutmix))));
  ASSERT_TRUE(succeeded(run(training("device", device + cutmix))));
  EXPECT_EQ(summary("device")["parameters_hash"], summary("loader")["parameters_hash"]);
}

TEST_F(Training, TheCpuHasNoQueue) {
  EXPECT_TRUE(refused(run(training("run", {"train.clock=async"})), 2,
                      {"train.clock=async", "train.device=cpu"}));
  EXPECT_FALSE(fs::exists(in("run")));
}

TEST_F(Training, LearnsMnistInOneEpoch) {
  const char* folder = std::getenv("MILLRACE_DATA");
  if (folder == nullptr || !fs::exists(fs::path(folder) / "mnist"))
    GTEST_SKIP() << "MILLRACE_DATA names no folder with mnist/ in it: real data is not tried";
  RunOptions options;
  options.timeout_s = 240;
  const Result result =
      run({"train", "mnist-lenet", "loader.workers=1", "train.epochs=1",
           "data.path=" + (fs::path(folder) / "mnist").string(), "--run", in("run").string()},
          options);
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(summary("run")["images"], 60000);
  EXPECT_GE(summary("run")["top1"], 0.95);
}

class WithoutTorch : public ProgramTest {};

TEST_F(WithoutTorch, TrainingAModelIsExitFour) {
  if (MILLRACE_HAS_TORCH != 0) GTEST_SKIP() << "this build has LibTorch";
  EXPECT_TRUE(refused(run(training("run")), 4, {"LibTorch", "simulated"}));
  EXPECT_TRUE(refused(run({"bench", "ops"}), 4, {"LibTorch"}));
}

}  // namespace
}  // namespace millrace::program_test
