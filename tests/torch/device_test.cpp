// Settings that only a CUDA device uses, as far as they can be tested without one.
#include "strategies/torch/device.h"

#include <gtest/gtest.h>

#include "millrace/error.h"
#include "strategies/torch/single.h"

namespace millrace::train {
namespace {

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

TEST(Device, ChannelsLastWhereItIsFaster) {
  const torch::Device cuda(torch::kCUDA, 0);
  StrategyOptions options;
  EXPECT_TRUE(wants_channels_last(options, torch::kCPU));
  EXPECT_TRUE(wants_channels_last(options, cuda)) << "TF32";
  options.tf32 = "off";
  EXPECT_TRUE(wants_channels_last(options, torch::kCPU));
  EXPECT_FALSE(wants_channels_last(options, cuda));
  options.amp = "bf16";
  EXPECT_TRUE(wants_channels_last(options, cuda));
  options.model_options.native_ops = true;
  EXPECT_FALSE(wants_channels_last(options, torch::kCPU));
  EXPECT_FALSE(wants_channels_last(options, cuda));
  options.channels_last = "on";
  EXPECT_THROW(wants_channels_last(options, cuda), UsageError);
  options.model_options.native_ops = false;
  options.amp = "off";
  EXPECT_TRUE(wants_channels_last(options, cuda));
  options.channels_last = "off";
  EXPECT_FALSE(wants_channels_last(options, torch::kCPU));
}

TEST(Device, TheModelHasTheFormatThatWasAskedFor) {
  StrategyOptions options;
  options.model = "resnet18";
  options.model_options.variant = "cifar";
  options.channels = 3;
  options.input = {32, 32};
  for (const bool on : {true, false}) {
    options.channels_last = on ? "on" : "off";
    const auto parameters = Single(options).model().named_parameters();
    EXPECT_EQ(parameters["layer1.0.conv1.weight"].is_contiguous(), !on);
  }
}

}  // namespace
}  // namespace millrace::train
