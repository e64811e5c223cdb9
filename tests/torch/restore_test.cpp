// Checkpoints in the middle of an epoch: a new strategy continues with the same bits (contract
// Exact resumption), and rejects by name files that do not belong to it.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "millrace/error.h"
#include "models/weights.h"
#include "strategies/torch/data_parallel.h"
#include "strategies/torch/single.h"
#include "tests/torch/ranks.h"
#include "tests/torch/temp_folder.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;

using test::Outcome;
using test::set;
using test::TempFolder;
using test::TrainingRun;

TrainingRun lenet_run() {
  TrainingRun run;
  run.strategy.sample.size = {28, 28};
  set(run.strategy, "train.momentum", 0.9);
  run.samples = 9 * 8 + 3;
  run.training.epochs = 2;
  run.training.batch = 8;
  run.training.eval_every = 0;  // only at the end
  run.training.checkpoint_every = 3;
  run.training.schedule = {.name = "cosine", .lr = 0.02, .warmup = 0.5, .milestones = {}};
  return run;
}

TrainingRun adamw_run() {
  TrainingRun run = lenet_run();
  set(run.strategy, "train.optimizer", "adamw");
  set(run.strategy, "train.momentum", 0);
  set(run.strategy, "train.weight_decay", 0.05);
  set(run.strategy, "train.clip", 0.5);
  set(run.strategy, "train.ema", 0.9);
  run.training.schedule.lr = 0.001;
  return run;
}

/// Saves at a run's second checkpoint.
struct Saver {
  void watch(TrainingRun& run, Strategy& strategy, const fs::path& folder) {
    run.checkpoint = [this, &strategy, folder](const Position& position) {
      if (++calls != 2) return;
      strategy.save(folder);
      at = position;
    };
  }
  int calls = 0;
  std::optional<Position> at;
};

template <class T>
std::vector<T> after(const std::vector<T>& all, std::uint64_t steps) {
  return {all.begin() + static_cast<std::ptrdiff_t>(steps), all.end()};
}

void expect_same_end(const Outcome& resumed, const Outcome& whole, const Position& at) {
  EXPECT_EQ(resumed.losses, after(whole.losses, at.steps));
  EXPECT_EQ(resumed.images, after(whole.images, at.steps));
  EXPECT_EQ(resumed.hash, whole.hash);
  // The open epoch counts the steps before the checkpoint too.
  EXPECT_EQ(resumed.train_losses, whole.train_losses);
  EXPECT_EQ(resumed.train_top1s, whole.train_top1s);
  EXPECT_EQ(resumed.result.images, whole.result.images);
  EXPECT_EQ(resumed.result.evaluation->loss_sum, whole.result.evaluation->loss_sum);
  EXPECT_EQ(resumed.result.evaluation->confusion, whole.result.evaluation->confusion);
}

/// Trains to the end, and again from a checkpoint at step `step`.
template <class Strategy>
void expect_resumes(TrainingRun run, std::uint64_t step) {
  const TempFolder folder;
  fs::create_directory(folder / "step");
  Saver saver;
  Outcome whole;
  {
    Strategy strategy(run.strategy);
    test::fill_by_name(strategy.model());
    saver.watch(run, strategy, folder / "step");
    whole = test::train(strategy, run);
  }
  ASSERT_TRUE(saver.at.has_value());
  ASSERT_EQ(saver.at->steps, step);
  run.checkpoint = nullptr;
  run.training.from = *saver.at;
  Strategy strategy(run.strategy);
  ASSERT_NE(strategy.parameters_hash(), whole.hash);
  strategy.restore(folder / "step");
  expect_same_end(test::train(strategy, run), whole, *saver.at);
}

TEST(Restore, SgdInTheMiddleOfAnEpoch) { expect_resumes<Single>(lenet_run(), 6); }

TEST(Restore, AdamWithAverages) {
  TrainingRun run = adamw_run();
  expect_resumes<Single>(run, 6);
  set(run.strategy, "train.optimizer", "adam");
  run.training.epochs = 1;
  run.training.checkpoint_every = 1;  // averages that have just begun
  expect_resumes<Single>(run, 2);
}

TEST(Restore, BetweenTwoWindows) {
  TrainingRun run = lenet_run();
  run.training.accumulate = 2;  // a checkpoint is due after step 3, in the middle of a window
  expect_resumes<Single>(run, 8);
}

TEST(Restore, TheScaleOfHalfPrecision) {
  TrainingRun run = lenet_run();
  set(run.strategy, "train.amp", "f16");
  run.training.schedule.lr = 0.001;
  expect_resumes<Single>(run, 6);
}

TEST(Restore, DropoutAndBatchNorm) {
  TrainingRun run = lenet_run();
  set(run.strategy, "model.name", "vgg_cifar");
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {32, 32};
  run.samples = 3 * 4 + 2;
  run.training.batch = 4;
  run.training.checkpoint_every = 1;
  run.training.schedule = {};
  expect_resumes<Single>(run, 2);
}

TEST(Restore, Replicas) {
  TrainingRun run = adamw_run();
  set(run.strategy, "train.replicas", 2);
  expect_resumes<DataParallel>(run, 6);
}

TEST(Restore, Ranks) {
  const TempFolder folder;
  fs::create_directory(folder / "step");
  TrainingRun run = adamw_run();
  std::vector<Saver> savers(3);
  const std::vector<Outcome> whole = test::train_ranks(run, 3, [&](TrainingRun& own, Ddp& ddp) {
    savers[static_cast<std::size_t>(own.strategy.rank.rank)].watch(own, ddp, folder / "step");
  });
  run.training.from = savers[0].at.value();
  const std::vector<Outcome> resumed =
      test::train_ranks(run, 3, [&](TrainingRun&, Ddp& ddp) { ddp.restore(folder / "step"); });
  for (std::size_t rank = 0; rank < 3; ++rank)
    expect_same_end(resumed[rank], whole[rank], run.training.from);
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Writes, at the end of the run, the copy of step 3 and compares it with what was written at once.
template <class Strategy>
void expect_copy(const TrainingRun& given) {
  const TempFolder folder;
  for (const char* name : {"at-once", "later", "end"}) fs::create_directory(folder / name);
  TrainingRun run = given;
  Strategy strategy(run.strategy);
  train::Strategy::Snapshot kept;
  run.checkpoint = [&](const Position&) {
    if (kept) return;
    kept = strategy.snapshot();
    strategy.save(folder / "at-once");
  };
  test::train(strategy, run);
  kept(folder / "later");
  strategy.save(folder / "end");
  for (const char* name : {"model.safetensors", "training.safetensors", "ema.safetensors"}) {
    if (!fs::exists(folder / "at-once" / name)) continue;
    EXPECT_EQ(text_of(folder / "later" / name), text_of(folder / "at-once" / name)) << name;
    EXPECT_NE(text_of(folder / "later" / name), text_of(folder / "end" / name)) << name;
  }
  EXPECT_EQ(fs::exists(folder / "later" / "ema.safetensors"),
            run.strategy.recipe.number("train.ema") > 0);
}

TEST(Snapshot, IsNotChangedByLaterSteps) {
  expect_copy<Single>(lenet_run());
  expect_copy<Single>(adamw_run());
  TrainingRun replicas = adamw_run();
  set(replicas.strategy, "train.replicas", 2);
  expect_copy<DataParallel>(replicas);
}

TEST(Snapshot, OfBatchNormAndPixelsFirst) {
  TrainingRun run = lenet_run();
  set(run.strategy, "model.name", "vgg_cifar");
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {32, 32};
  set(run.strategy, "train.channels_last", "on");
  run.samples = 2 * 2;
  run.training.epochs = 1;
  run.training.batch = 2;
  run.training.checkpoint_every = 1;
  run.training.schedule = {};
  expect_copy<Single>(run);
}

/// The calls for many tensors at a time have the bits of one call per tensor.
TEST(Ema, HasTheBitsOfTensorsOneByOne) {
  torch::manual_seed(3);
  TrainingRun run = lenet_run();
  set(run.strategy, "model.name", "vgg_cifar");  // with batch norm, whose counters are integers
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {32, 32};
  Single single(run.strategy);
  constexpr double kDecay = 0.93;
  Ema ema(single.model(), kDecay);
  const NamedTensors values = state_of(single.model());
  std::vector<torch::Tensor> expected;
  for (int update = 0; update < 4; ++update) {
    const torch::NoGradGuard no_grad;
    for (const auto& [name, value] : values) {
      torch::Tensor own = value.detach();
      if (own.is_floating_point())
        own.add_(torch::randn_like(own));
      else
        own.add_(1);
    }
    ema.update();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const torch::Tensor value = values[i].second.detach();
      if (update == 0)
        expected.push_back(value.clone());
      else if (value.is_floating_point())
        expected[i].lerp_(value, 1 - kDecay);
      else
        expected[i].copy_(value);
    }
    if (update == 2) {  // an evaluation
      ema.swap();
      ema.swap();
    }
  }
  const NamedTensors averages = ema.state();
  ASSERT_EQ(averages.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(torch::equal(averages[i].second, expected[i])) << averages[i].first;
}

TEST(Snapshot, TakesNoMoreMemoryOnceTheLastOneIsWritten) {
  const TempFolder folder;
  const fs::path file = folder / "model.safetensors";
  TensorValues values;
  const NamedTensors tensors{
      {"w", torch::arange(24.f).view({2, 3, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast)},
      {"n", torch::full({}, 7, torch::kLong)},
      {"part", torch::arange(12.f).view({3, 4}).narrow(1, 1, 2)}};
  values.take(tensors);
  values.save(file);
  const std::string before = text_of(file);
  save_tensors({{"n", tensors[1].second},
                {"part", tensors[2].second.contiguous()},
                {"w", tensors[0].second.contiguous()}},
               file);
  EXPECT_EQ(text_of(file), before) << "row-major whatever the layout";
  tensors[0].second.zero_();
  values.save(file);
  EXPECT_EQ(text_of(file), before);
  values.take(tensors);
  values.save(file);
  EXPECT_NE(text_of(file), before);
  values.take({tensors[1]});  // another form
  values.save(file);
  const torch::Tensor count = torch::zeros({}, torch::kLong);
  load_tensors({{"n", count}}, file, "the test", "");
  EXPECT_EQ(count.item<std::int64_t>(), 7);
}

class Refusal : public testing::Test {
 protected:
  Refusal() {
    fs::create_directory(step_);
    Single single(adamw_run().strategy);
    single.save(step_);
  }
  /// Returns the message with which a strategy of `options` rejects the checkpoint.
  std::string of(const StrategyOptions& options) const {
    Single single(options);
    try {
      single.restore(step_);
      return "not refused";
    } catch (const DataError& error) {
      return error.what();
    }
  }
  std::string file(const char* name) const { return (step_ / name).string(); }

  const TempFolder folder_;
  const fs::path step_ = folder_ / "step";
};

TEST_F(Refusal, FilesThatAreCutOrGone) {
  const StrategyOptions options = adamw_run().strategy;
  EXPECT_EQ(of(options), "not refused");
  for (const char* name : {"model.safetensors", "training.safetensors", "ema.safetensors"}) {
    const std::string path = file(name);
    fs::rename(path, path + ".whole");
    EXPECT_NE(of(options).find(path), std::string::npos) << of(options);
    const auto size = fs::file_size(path + ".whole");
    for (const std::uintmax_t bytes : {std::uintmax_t{0}, std::uintmax_t{5}, size / 2, size - 1}) {
      fs::copy_file(path + ".whole", path, fs::copy_options::overwrite_existing);
      fs::resize_file(path, bytes);
      EXPECT_NE(of(options).find(path), std::string::npos) << of(options);
    }
    fs::rename(path + ".whole", path);
  }
  EXPECT_EQ(of(options), "not refused");
}

TEST_F(Refusal, AnothersCheckpoint) {
  StrategyOptions options = adamw_run().strategy;
  set(options, "model.name", "mlp");
  EXPECT_EQ(of(options).find(file("model.safetensors") + " does not fit the model: "), 0u);
  options = adamw_run().strategy;
  set(options, "train.optimizer", "sgd");
  set(options, "train.momentum", 0.9);
  std::string what = of(options);
  EXPECT_EQ(what.find(file("training.safetensors") + " does not fit the run: "), 0u) << what;
  EXPECT_NE(what.find("momentum/conv1.bias is missing"), std::string::npos) << what;
  EXPECT_NE(what.find("exp_avg/conv1.bias is not in the run"), std::string::npos) << what;
  options = adamw_run().strategy;
  set(options, "train.ema", 0);
  EXPECT_EQ(of(options).find(file("training.safetensors") + " does not fit the run: "), 0u);
  options = adamw_run().strategy;
  set(options, "train.amp", "f16");
  EXPECT_NE(of(options).find("scaler/scale is missing"), std::string::npos);
}

}  // namespace
}  // namespace millrace::train
