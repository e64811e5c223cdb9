// Choices that a recipe has about a model, besides its name. Plain data, independent of LibTorch:
// it travels with a strategy's options.
#pragma once

#include <string>

namespace millrace::train {

struct ModelOptions {
  /// Form of a ResNet's stem and a VGG's head: imagenet (as in torchvision) or cifar (32x32
  /// images). Other models have one form.
  std::string variant = "imagenet";
  double dropout = -1;  ///< probability; negative: as in the model's source
  /// default (as in the model's source), kaiming or xavier (models/init.h).
  std::string init = "default";
  bool native_ops = false;  ///< native convolutions and poolings (models/ops.h); LeNets only
};

}  // namespace millrace::train
