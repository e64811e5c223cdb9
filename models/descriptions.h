// The models that model.name takes, each described by its layers. Independent of LibTorch.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/private_api.h"

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
  /// Returns whether the model takes only images of the size that it was made for: its first linear
  /// layer sees them whole. The others end in a pooling to one size.
  constexpr bool takes_one_size() const { return sequential() != nullptr; }
  /// Returns whether model.variant may be cifar.
  constexpr bool has_cifar_variant() const {
    const auto* const vgg = std::get_if<VggLayers>(&layers);
    return vgg != nullptr ? !vgg->has_study_head : std::holds_alternative<ResNetLayers>(layers);
  }
};

/// Returns the description of a model; null for an unknown name.
MILLRACE_PRIVATE_API const ModelDescription* describe_model(std::string_view name);

/// Returns the names of all models, or of those whose layers follow one another.
MILLRACE_PRIVATE_API std::vector<std::string> model_names(bool only_sequential = false);

}  // namespace millrace::train
