// Layers of the small models.
#include "models/simple.h"

namespace millrace::train {
namespace {

constexpr int kHidden = 128;
constexpr int kMaps = 6;

std::int64_t pixels(const ModelShape& shape) {
  return std::int64_t{shape.input.width} * shape.input.height;
}

}  // namespace

LinearModel::LinearModel(const ModelShape& shape) {
  fc_ = register_module("fc", torch::nn::Linear(shape.channels * pixels(shape), shape.classes));
}

torch::Tensor LinearModel::forward(const torch::Tensor& images) {
  return fc_(torch::flatten(images, 1));
}

Mlp::Mlp(const ModelShape& shape) {
  fc1_ = register_module("fc1", torch::nn::Linear(shape.channels * pixels(shape), kHidden));
  fc2_ = register_module("fc2", torch::nn::Linear(kHidden, shape.classes));
}

torch::Tensor Mlp::forward(const torch::Tensor& images) {
  return fc2_(torch::relu(fc1_(torch::flatten(images, 1))));
}

SimpleConv::SimpleConv(const ModelShape& shape) {
  conv1_ = register_module(
      "conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(shape.channels, kMaps, 3).padding(1)));
  fc1_ = register_module("fc1", torch::nn::Linear(kMaps * pixels(shape), kHidden));
  fc2_ = register_module("fc2", torch::nn::Linear(kHidden, shape.classes));
}

torch::Tensor SimpleConv::forward(const torch::Tensor& images) {
  const torch::Tensor maps = torch::relu(conv1_(images));
  return fc2_(torch::relu(fc1_(torch::flatten(maps, 1))));
}

}  // namespace millrace::train
