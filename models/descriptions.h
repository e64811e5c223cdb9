// The models that model.name takes, each described by its layers. Independent of LibTorch.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace::train {

/// A convolution with square kernels, then ReLU and, if `pools`, 2x2 max pooling.
struct ConvolutionStage {
  int maps = 0;
  int kernel = 1;
  int padding = 0;  ///< zeros on each side
  bool pools = false;
};

/// Layers that follow one another: convolutions, hidden linear layers with ReLU, and a linear layer
/// from there to the classes.
struct SequentialLayers {
  std::span<const ConvolutionStage> convolutions;
  std::span<const int> hidden;  ///< features of each hidden linear layer
};

/// Convolutions of a VGG, and the linear layers after them.
struct VggLayers {
  int depth;  ///< convolutions of the third, fourth and fifth block: 3 (VGG-16) or 4 (VGG-19)
  bool batch_norm;
  bool has_study_head = false;  ///< the head that the studies train on CIFAR-10
};

struct ResNetLayers {
  bool bottleneck;            ///< blocks of 1x1, 3x3, 1x1 convolutions instead of two 3x3
  std::array<int, 4> blocks;  ///< number of blocks in layer1 to layer4
};

/// A model, and all that is said of it: the key's choices, factories and `bench ops` are made from
/// this.
struct ModelDescription {
  std::string_view name;
  std::variant<SequentialLayers, VggLayers, ResNetLayers> layers;

  /// Returns the layers of a sequential model; null for others.
  constexpr const SequentialLayers* sequential() const {
    return std::get_if<SequentialLayers>(&layers);
  }
  /// Returns whether model.variant may be cifar.
  constexpr bool has_cifar_variant() const {
    const auto* const vgg = std::get_if<VggLayers>(&layers);
    return vgg != nullptr ? !vgg->has_study_head : std::holds_alternative<ResNetLayers>(layers);
  }
};

inline constexpr ConvolutionStage kLenet5[] = {{6, 5, 2, true}, {16, 5, 0, true}};
inline constexpr ConvolutionStage kLenet5Plain[] = {{6, 3, 0, true}, {16, 3, 0, true}};
inline constexpr ConvolutionStage kLenet5Cifar[] = {{6, 3, 1, true}, {16, 3, 1, true}};
inline constexpr ConvolutionStage kSimpleConv[] = {{6, 3, 1, false}};
inline constexpr int kLenetHidden[] = {120, 84};
inline constexpr int kOneHidden[] = {128};

/// All models: the only list. Those whose layers follow one another are LeNet-5, and the smaller
/// ones that study S4 compares with it.
inline constexpr std::array kModels{
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

/// Returns the description of a model; null for an unknown name.
constexpr const ModelDescription* describe_model(std::string_view name) {
  const auto found = std::ranges::find(kModels, name, &ModelDescription::name);
  return found == kModels.end() ? nullptr : &*found;
}

/// Returns the names of all models, or of those whose layers follow one another.
inline std::vector<std::string> model_names(bool only_sequential = false) {
  std::vector<std::string> names;
  for (const ModelDescription& model : kModels)
    if (!only_sequential || model.sequential() != nullptr) names.emplace_back(model.name);
  return names;
}

}  // namespace millrace::train
