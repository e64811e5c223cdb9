// Real training: it learns, its weights can be evaluated and loaded again, and it is reproducible.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <sstream>

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

TEST_F(Training, AccuracyOnTheTrainingImagesIsRecordedUnlessLabelsAreMixed) {
  const auto run_with = [this](const std::string& name, const Arguments& more) {
    EXPECT_TRUE(succeeded(run(training(name, Arguments{"train.epochs=4"} + more))));
    return parse_json_lines(read_file(in(name) / "metrics.jsonl"));
  };
  const auto plain = run_with("plain", {});
  EXPECT_LT(plain[0]["train_top1"], plain[3]["train_top1"]);
  EXPECT_GE(plain[3]["train_top1"], 0.8);  // chance: 0.1
  EXPECT_EQ(summary("plain")["train_top1"], plain[3]["train_top1"]);
  const double images = 200 * plain[0]["train_top1"].get<double>();
  EXPECT_DOUBLE_EQ(images, std::round(images)) << "a count of 200 images";

  for (const Json& epoch : run_with("smooth", {"train.label_smoothing=0.1"}))
    EXPECT_TRUE(epoch["train_top1"].is_number());
  for (const Json& epoch : run_with("mixed", {"augment+=mixup"})) {
    EXPECT_TRUE(epoch["train_top1"].is_null());
    EXPECT_TRUE(epoch["train_loss"].is_number());
  }
  EXPECT_TRUE(summary("mixed")["train_top1"].is_null());
  const Result report = run({"report", in("plain").string(), "--json"});
  EXPECT_NE(report.out.find("training top-1"), std::string::npos) << report.out;
}

TEST_F(Training, VerbosePrintsTheLossAtTheSameStepsOfEachEpoch) {
  const Result result = run(training("run", {"train.epochs=3", "train.log_every=4", "--verbose"}));
  ASSERT_TRUE(succeeded(result));
  std::string printed;
  for (const std::string& line : lines_of(result.err))
    if (line.find(" step ") != std::string::npos)
      printed += line.substr(0, line.find(" loss ")) + "\n";
  EXPECT_EQ(printed,
            "epoch 1 step 2/10\nepoch 1 step 6/10\nepoch 1 step 10/10\n"
            "epoch 2 step 2/10\nepoch 2 step 6/10\nepoch 2 step 10/10\n"
            "epoch 3 step 2/10\nepoch 3 step 6/10\nepoch 3 step 10/10\n");
}

TEST_F(Training, OfManyClassesTheTenWorstAreShown) {
  const Result trained = run(training(
      "run", {"data.reader=synthetic", "data.synthetic.classes=12", "data.synthetic.count=48",
              "data.synthetic.width=28", "data.synthetic.height=28", "data.synthetic.channels=1",
              "model.classes=12", "train.epochs=1", "loader.batch=24"}));
  ASSERT_TRUE(succeeded(trained));
  EXPECT_NE(trained.out.find("per class, the 10 worst of 12:"), std::string::npos) << trained.out;
  EXPECT_EQ(summary("run")["per_class"].size(), 12u) << "the records have all";
  const Result evaluated = run({"eval", in("run").string()});
  ASSERT_TRUE(succeeded(evaluated));
  EXPECT_NE(evaluated.out.find("the 10 worst of 12 classes"), std::string::npos) << evaluated.out;
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

TEST_F(Training, WithoutASplitForItNothingIsEvaluated) {
  write_photos(in("photos"), 4);
  const Arguments arguments{"train",
                            "data.reader=folder",
                            "data.path=" + in("photos").string(),
                            "loader.batch=4",
                            "train.epochs=1",
                            "model.name=lenet5_cifar",
                            "eval.augment+=resize{size=1}",  // images of a size that no model takes
                            "eval.split=none",
                            "--run",
                            in("run").string()};
  ASSERT_TRUE(succeeded(run(arguments)));
  const Json s = summary("run");
  EXPECT_EQ(s["epochs"], 1);
  EXPECT_TRUE(s["top1"].is_null()) << s["top1"];
  EXPECT_TRUE(
      refused(run({"eval", in("run").string()}), 2, {"eval.split=none", "eval.split=test"}));
  EXPECT_TRUE(refused(run(arguments + Arguments{"train.early_stopping.metric=test_loss"}), 2,
                      {"train.early_stopping.metric", "eval.split=none"}));
}

TEST_F(Training, AModelOfOneSizeIsEvaluatedInIt) {
  const Arguments crop{"augment+=random_crop{size=24}"};
  EXPECT_TRUE(
      refused(run(training("run", crop)), 2,
              {"24x24", "28x28", "model.name=lenet5_plain takes one size", "eval.augment+="}));
  EXPECT_FALSE(fs::exists(in("run")));
  EXPECT_TRUE(
      succeeded(run(training("run", crop + Arguments{"eval.augment+=random_crop{size=24}"}))));
}

TEST_F(Training, AModelThatEndsInAPoolingMayBeEvaluatedInAnotherSize) {
  const auto trained_on = [&](const char* model, const char* side, const char* eval_side) {
    return training("run", {std::string("model.name=") + model, "loader.batch=32",
                            fmt::format("augment+=resize{{size=[{0},{0}]}}", side),
                            fmt::format("eval.augment+=resize{{size=[{0},{0}]}}", eval_side)});
  };
  EXPECT_TRUE(refused(run(trained_on("vgg_cifar", "32", "24")), 2,
                      {"model.name=vgg_cifar takes images of at least 32x32", "24x24"}));
  EXPECT_FALSE(fs::exists(in("run")));
  ASSERT_TRUE(succeeded(run(trained_on("resnet18", "20", "36"))));
  const auto loss_of = [&](const Arguments& more) {
    const Result result = run(Arguments{"eval", in("run").string(), "--json"} + more);
    EXPECT_TRUE(succeeded(result));
    return Json::parse(result.out)["test_loss"];
  };
  EXPECT_EQ(summary("run")["test_loss"], loss_of({}));
  EXPECT_NE(summary("run")["test_loss"], loss_of({"eval.augment.resize.size=[20,20]"}));
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

/// Returns the fields of a line of CSV without quotes.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, ',');) fields.push_back(field);
  return fields;
}

TEST_F(Training, EvalWritesAPredictionPerImage) {
  ASSERT_TRUE(succeeded(run(training("run", {"train.epochs=2"}))));
  const std::string file = in("predictions.csv").string();
  const Result result = run({"eval", in("run").string(), "--predictions", file, "--json"});
  ASSERT_TRUE(succeeded(result));
  const Json json = parse_json(result.out);
  const auto lines = lines_of(read_file(file));
  ASSERT_EQ(lines.size(), 61u);
  EXPECT_EQ(lines[0], "name,label,predicted,probability");
  std::map<std::string, int> names;
  std::vector<std::vector<int>> confusion(10, std::vector<int>(10));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto fields = fields_of(lines[i]);
    ASSERT_EQ(fields.size(), 4u) << lines[i];
    ++names[fields[0]];
    EXPECT_EQ(fields[1], std::to_string((i - 1) % 10)) << "the order of the data set";
    ++confusion[std::stoul(fields[1])][std::stoul(fields[2])];
    EXPECT_GE(std::stod(fields[3]), 0.1) << "the largest of 10 probabilities";
    EXPECT_LE(std::stod(fields[3]), 1.0);
  }
  EXPECT_EQ(names.size(), 60u);
  EXPECT_EQ(Json(confusion), json["confusion"]);
  EXPECT_TRUE(no_temporaries(in("")));
}

TEST_F(Training, PredictionsLeaveOutImagesThatCannotBeLoaded) {
  write_photos(in("photos"), 6, 32);
  fs::rename(in("photos") / "train", in("photos") / "test");
  write_photos(in("photos"), 6, 32);
  write_file(in("photos") / "train" / "ape" / "10.jpg", "no image");
  write_file(in("photos") / "test" / "bee" / "12.jpg", "no image");
  write_file(in("photos") / "test" / "cat" / "15.jpg", "no image");
  ASSERT_TRUE(succeeded(run({"train", "data.reader=folder", "data.path=" + in("photos").string(),
                             "loader.batch=4", "loader.on_error=skip", "model.name=lenet5_cifar",
                             "train.threads=1", "train.epochs=1", "--run", in("run").string()})));
  const std::string file = in("predictions.csv").string();
  ASSERT_TRUE(succeeded(run({"eval", in("run").string(), "eval.batch=5", "--predictions", file})));
  std::vector<std::string> found;
  for (const std::string& line : lines_of(read_file(file))) {
    const auto fields = fields_of(line);
    if (fields[0] == "name") continue;
    const fs::path image = fields[0];
    found.push_back(image.parent_path().filename() / image.filename());
    EXPECT_EQ(fields[1], image.parent_path().filename()) << line;
  }
  std::vector<std::string> expected;
  for (const char* name : {"ape", "bee", "cat"})
    for (int i = 10; i < 16; ++i) {
      const std::string image = fmt::format("{}/{}.jpg", name, i);
      if (image != "bee/12.jpg" && image != "cat/15.jpg") expected.push_back(image);
    }
  EXPECT_EQ(found, expected);
}

TEST_F(Training, PredictionsReplaceNothingButFiles) {
  ASSERT_TRUE(succeeded(run(training("run"))));
  const auto predicted_to = [&](const std::string& file) {
    return run({"eval", in("run").string(), "--predictions", file});
  };
  EXPECT_TRUE(refused(predicted_to(in("run").string()), 2, {"--predictions", "not a file"}));
  EXPECT_TRUE(refused(predicted_to("/dev/null"), 2, {"/dev/null", "not a file"}));
  EXPECT_TRUE(refused(predicted_to(in("none/p.csv").string()), 1, {"none/p.csv", "created"}));
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

TEST_F(Training, EarlyStoppingNeedsEvaluations) {
  const auto with = [&](const Arguments& more) {
    return run(training("run", Arguments{"train.early_stopping.metric=top1"} + more));
  };
  EXPECT_TRUE(refused(with({"train.early_stopping.patience=0"}), 2,
                      {"train.early_stopping.patience", "1"}));
  EXPECT_TRUE(refused(with({"train.early_stopping.min_delta=-0.1"}), 2,
                      {"train.early_stopping.min_delta", "0"}));
  EXPECT_TRUE(refused(with({"train.early_stopping.metric=accuracy"}), 2,
                      {"train.early_stopping.metric", "test_loss", "top1"}));
  EXPECT_TRUE(refused(with({"eval.every=0"}), 2,
                      {"train.early_stopping.metric=top1", "eval.every=0", "eval.every=1"}));
  EXPECT_TRUE(refused(with({"train.device=simulated"}), 2,
                      {"train.early_stopping.metric=top1", "simulated", "metric=off"}));
  EXPECT_FALSE(std::filesystem::exists(in("run")));
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
  // These only move pixels: the losses are the same wherever normalisation happens.
  for (const std::string op : {"cutmix", "mosaic"}) {
    const Arguments moves{"augment+=" + op, "train.steps=5"};
    ASSERT_TRUE(succeeded(run(training(op + "-loader", moves))));
    ASSERT_TRUE(succeeded(run(training(op + "-device", device + moves))));
    EXPECT_EQ(summary(op + "-device")["parameters_hash"],
              summary(op + "-loader")["parameters_hash"])
        << op;
  }
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
