// LeNet-5's layers and sizes.
#include "models/lenet.h"

#include <algorithm>
#include <string>

#include "models/init.h"

namespace millrace::train {
namespace {

constexpr int kPool = 2;
constexpr int kFeatureMaps = 16;

int after_stage(int side, int kernel, int padding) {
  return std::max(0, (side + 2 * padding - kernel + 1) / kPool);
}

/// Returns the side of the maps that reach fc1, for images of side `side`; 0 if nothing is left.
int after_convolutions(const LeNetVariant& v, int side) {
  const int half = after_stage(side, v.kernel, v.padding1);
  return half == 0 ? 0 : after_stage(half, v.kernel, v.padding2);
}

int smallest_side(const LeNetVariant& variant) {
  int side = 1;
  while (after_convolutions(variant, side) == 0) ++side;
  return side;
}

std::int64_t features(std::string_view name, const LeNetVariant& variant, Size input) {
  require_side(name, input, smallest_side(variant));
  const std::int64_t width = after_convolutions(variant, input.width);
  const std::int64_t height = after_convolutions(variant, input.height);
  return kFeatureMaps * width * height;
}

torch::nn::Conv2d convolution(int in, int out, int kernel, int padding) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).padding(padding));
}

}  // namespace

LeNet::LeNet(std::string_view name, const LeNetVariant& variant, const ModelShape& shape,
             bool native_ops)
    : ops_(native_ops) {
  const std::int64_t flat = features(name, variant, shape.input);
  conv1_ =
      register_module("conv1", convolution(shape.channels, 6, variant.kernel, variant.padding1));
  conv2_ = register_module("conv2", convolution(6, kFeatureMaps, variant.kernel, variant.padding2));
  fc1_ = register_module("fc1", torch::nn::Linear(flat, 120));
  fc2_ = register_module("fc2", torch::nn::Linear(120, 84));
  fc3_ = register_module("fc3", torch::nn::Linear(84, shape.classes));
}

torch::Tensor LeNet::forward(const torch::Tensor& images) {
  torch::Tensor x = ops_.conv_relu_pool(images, conv1_);
  x = ops_.conv_relu_pool(x, conv2_);
  x = torch::relu(fc1_(torch::flatten(x, 1)));
  x = torch::relu(fc2_(x));
  return fc3_(x);
}

}  // namespace millrace::train
