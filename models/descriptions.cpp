// The table of models.
#include "models/descriptions.h"

#include <algorithm>

namespace millrace::train {
namespace {

constexpr ConvolutionStage kLenet5[] = {{6, 5, 2, true}, {16, 5, 0, true}};
constexpr ConvolutionStage kLenet5Plain[] = {{6, 3, 0, true}, {16, 3, 0, true}};
constexpr ConvolutionStage kLenet5Cifar[] = {{6, 3, 1, true}, {16, 3, 1, true}};
constexpr ConvolutionStage kSimpleConv[] = {{6, 3, 1, false}};
constexpr int kLenetHidden[] = {120, 84};
constexpr int kOneHidden[] = {128};

/// All models: the only list. Those whose layers follow one another are LeNet-5, and the smaller
/// ones that study S4 compares with it.
constexpr std::array kModels{
    ModelDescription{"lenet5", SequentialLayers{kLenet5, kLenetHidden}},  // 28x28: 400 features
    // 3x3 convolutions, no padding (study S0); 28x28: 400 features
    ModelDescription{"lenet5_plain", SequentialLayers{kLenet5Plain, kLenetHidden}},
    // 3x3 convolutions, padded (study S1); 32x32: 1024 features
    ModelDescription{"lenet5_cifar", SequentialLayers{kLenet5Cifar, kLenetHidden}},
    ModelDescription{"linear", SequentialLayers{}},
    ModelDescription{"mlp", SequentialLayers{{}, kOneHidden}},  // study S4's pure_linear
    ModelDescription{"simple_conv", SequentialLayers{kSimpleConv, kOneHidden}},
    ModelDescription{"vgg16", VggLayers{3, false}},  // as in torchvision
    ModelDescription{"vgg16_bn", VggLayers{3, true}},
    ModelDescription{"vgg19", VggLayers{4, false}},  // study S2, with model.variant=cifar
    ModelDescription{"vgg19_bn", VggLayers{4, true}},
    // vgg19_bn's convolutions under three linear layers (study S1)
    ModelDescription{"vgg_cifar", VggLayers{4, true, /*has_study_head=*/true}},
    ModelDescription{"resnet18", ResNetLayers{false, {2, 2, 2, 2}}},  // as in torchvision
    ModelDescription{"resnet34", ResNetLayers{false, {3, 4, 6, 3}}},
    ModelDescription{"resnet50", ResNetLayers{true, {3, 4, 6, 3}}},  // study S3
};

}  // namespace

const ModelDescription* describe_model(std::string_view name) {
  const auto found = std::ranges::find(kModels, name, &ModelDescription::name);
  return found == kModels.end() ? nullptr : &*found;
}

std::vector<std::string> model_names(bool only_sequential) {
  std::vector<std::string> names;
  for (const ModelDescription& model : kModels)
    if (!only_sequential || model.sequential() != nullptr) names.emplace_back(model.name);
  return names;
}

}  // namespace millrace::train
