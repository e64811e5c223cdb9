// VGG's blocks and heads.
#include "models/vgg.h"

#include <array>

#include "models/layers.h"

namespace millrace::train {
namespace {

namespace nn = torch::nn;

constexpr int kLeastSide = 32;  // five poolings reduce it to one pixel
constexpr int kFeatures = 512;
constexpr double kDropout = 0.5;
constexpr double kLinearDeviation = 0.01;

struct Block {
  int channels;
  int convolutions;
};

nn::ReLU relu() { return nn::ReLU(nn::ReLUOptions(/*inplace=*/true)); }

nn::Sequential make_features(const VggVariant& variant, int channels) {
  const std::array<Block, 5> blocks{
      {{64, 2}, {128, 2}, {256, variant.depth}, {512, variant.depth}, {512, variant.depth}}};
  nn::Sequential layers;
  for (const Block& block : blocks) {
    for (int i = 0; i < block.convolutions; ++i) {
      layers->push_back(nn::Conv2d(nn::Conv2dOptions(channels, block.channels, 3).padding(1)));
      if (variant.batch_norm) layers->push_back(BatchNorm(block.channels));
      layers->push_back(relu());
      channels = block.channels;
    }
    layers->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(2)));
  }
  return layers;
}

/// Returns linear layers with ReLU and dropout between them.
nn::Sequential make_head(int features, const std::vector<int>& hidden, int classes,
                         double dropout) {
  nn::Sequential layers;
  for (const int width : hidden) {
    layers->push_back(nn::Linear(features, width));
    layers->push_back(relu());
    layers->push_back(Dropout(dropout));
    features = width;
  }
  layers->push_back(nn::Linear(features, classes));
  return layers;
}

std::vector<int> hidden_layers(VggHead head) {
  switch (head) {
    case VggHead::imagenet:
      return {4096, 4096};
    case VggHead::study:
      return {256, 128};
    case VggHead::cifar:
      break;
  }
  return {};
}

}  // namespace

Vgg::Vgg(std::string_view name, const VggVariant& variant, const ModelShape& shape, double dropout)
    : pooled_(variant.head == VggHead::imagenet ? 7 : 1) {
  require_side(name, shape.input, kLeastSide);
  features_ = register_module("features", make_features(variant, shape.channels));
  classifier_ = register_module(
      "classifier", make_head(kFeatures * pooled_ * pooled_, hidden_layers(variant.head),
                              shape.classes, dropout < 0 ? kDropout : dropout));
  if (variant.head == VggHead::study) return;
  init_convolutions(*this);
  init_linear_layers(*this, kLinearDeviation);
}

torch::Tensor Vgg::forward(const torch::Tensor& images) {
  const torch::Tensor maps =
      torch::adaptive_avg_pool2d(features_->forward(images), {pooled_, pooled_});
  return classifier_->forward(torch::flatten(maps, 1));
}

}  // namespace millrace::train
