// Settings that only a CUDA device uses, as far as they can be tested without one.
#include "strategies/torch/device.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "millrace/error.h"
#include "strategies/torch/single.h"
#include "tests/torch/training_run.h"

namespace millrace::train {
namespace {

using test::set;
using test::TrainingRun;

TEST(Device, Tf32IsWhatTheKeySays) {
  const auto& context = at::globalContext();
  EXPECT_TRUE(context.allowTF32CuDNN()) << "PyTorch's default, which conv is";
  EXPECT_FALSE(context.allowTF32CuBLAS());
  allow_tf32("on");
  EXPECT_TRUE(context.allowTF32CuDNN());
  EXPECT_TRUE(context.allowTF32CuBLAS());
  allow_tf32("off");
  EXPECT_FALSE(context.allowTF32CuDNN());
  EXPECT_FALSE(context.allowTF32CuBLAS());
  allow_tf32("conv");
  EXPECT_TRUE(context.allowTF32CuDNN());
  EXPECT_FALSE(context.allowTF32CuBLAS());
}

TEST(Device, DeterminismReachesEverySwitch) {
  const auto& context = at::globalContext();
  EXPECT_FALSE(context.deterministicCuDNN());
  EXPECT_FALSE(context.deterministicAlgorithms());
  unsetenv("CUBLAS_WORKSPACE_CONFIG");
  require_determinism();
  EXPECT_TRUE(context.deterministicCuDNN());
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(context.deterministicFillUninitializedMemory());
  EXPECT_FALSE(context.benchmarkCuDNN());
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  at::globalContext().setDeterministicAlgorithms(false, false);
  at::globalContext().setDeterministicCuDNN(false);
}

TEST(Device, AlgorithmsAreChosenByTimeWhereTheKeySaysSo) {
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  choose_algorithms_by_time(true);
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
  choose_algorithms_by_time(false);
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
}

/// Shows the form of images that a strategy has chosen.
struct ResolvedForm final : TorchStrategy {
  explicit ResolvedForm(const StrategyOptions& options) : TorchStrategy(options) {}
  using TorchStrategy::form;
  Loss gradients(Batch&, const StepContext&, measure::SpanClock&) override {
    throw std::logic_error("it does not train");
  }
};

/// A convolution and a linear layer.
torch::nn::Sequential convolutional(std::int64_t channels) {
  return torch::nn::Sequential(torch::nn::Conv2d(3, channels, 3), torch::nn::Linear(4, 10));
}

TEST(Device, ChannelsLastWhereItIsFaster) {
  const torch::Device cuda(torch::kCUDA, 0);
  const torch::nn::Sequential wide = convolutional(16);
  const torch::nn::Sequential narrow = convolutional(6);  // as LeNet's first
  StrategyOptions options;
  EXPECT_TRUE(wants_channels_last(options, torch::kCPU, *narrow));
  EXPECT_TRUE(wants_channels_last(options, cuda, *wide)) << "TF32";
  EXPECT_FALSE(wants_channels_last(options, cuda, *narrow)) << "cuDNN has no fast kernel for it";
  set(options, "train.tf32", "off");
  EXPECT_TRUE(wants_channels_last(options, torch::kCPU, *wide));
  EXPECT_FALSE(wants_channels_last(options, cuda, *wide));
  set(options, "train.amp", "bf16");
  EXPECT_TRUE(wants_channels_last(options, cuda, *narrow));
  set(options, "model.ops", "native");
  EXPECT_FALSE(wants_channels_last(options, torch::kCPU, *wide));
  EXPECT_FALSE(wants_channels_last(options, cuda, *wide));
  set(options, "model.ops", "torch");
  set(options, "train.amp", "off");
  set(options, "train.channels_last", "on");
  EXPECT_TRUE(wants_channels_last(options, cuda, *narrow));
  set(options, "train.channels_last", "off");
  EXPECT_FALSE(wants_channels_last(options, torch::kCPU, *wide));
  options = {};
  set(options, "train.tf32", "off");
  options.sample.channels = 3;
  options.sample.layout = Layout::hwc;
  EXPECT_TRUE(wants_channels_last(options, cuda, *narrow)) << "the batches are laid out so";
  options.sample.channels = 1;
  EXPECT_FALSE(wants_channels_last(options, cuda, *narrow));
}

TEST(Device, NativeOpsWorkOnPlanesOnly) {
  StrategyOptions options;
  options.sample.size = {28, 28};
  set(options, "train.channels_last", "on");
  set(options, "model.ops", "native");
  EXPECT_THROW(Single{options}, UsageError);
}

/// One channel's planes are pixels too, and their strides decide which of both a convolution sees.
TEST(Device, ASingleChannelHasTheFormatThatWasAskedFor) {
  TrainingRun run;
  run.strategy.sample.size = {28, 28};
  run.training.batch = 8;
  run.samples = 8;
  for (const bool on : {true, false}) {
    Loader loader = test::loader_of(run, 1, 0);
    const Batch batch = loader.next();
    const torch::Tensor images =
        images_of(batch, whole(batch), {"lenet5", run.strategy.sample, /*channels_last=*/on});
    EXPECT_EQ(images.suggest_memory_format(),
              on ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous);
    const auto convolved = torch::conv2d(images, torch::ones({4, 1, 3, 3}));
    EXPECT_EQ(convolved.is_contiguous(torch::MemoryFormat::ChannelsLast), on);
  }
}

TEST(Device, AutoIsResolvedForTheBatchesToo) {
  for (const bool native : {false, true}) {
    TrainingRun run;
    run.strategy.sample.size = {28, 28};
    set(run.strategy, "model.ops", native ? "native" : "torch");
    EXPECT_EQ(ResolvedForm(run.strategy).form().channels_last, !native);
  }
}

TEST(Device, TheModelHasTheFormatThatWasAskedFor) {
  StrategyOptions options;
  set(options, "model.name", "resnet18");
  set(options, "model.variant", "cifar");
  options.sample.channels = 3;
  options.sample.size = {32, 32};
  for (const bool on : {true, false}) {
    set(options, "train.channels_last", on ? "on" : "off");
    const auto parameters = Single(options).model().named_parameters();
    EXPECT_EQ(parameters["layer1.0.conv1.weight"].is_contiguous(), !on);
  }
}

}  // namespace
}  // namespace millrace::train
