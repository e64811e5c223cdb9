// What a recipe may choose about a model beside its name. Plain data, free of LibTorch: it travels
// with a strategy's options.
#pragma once

#include <string>

namespace millrace::train {

struct ModelOptions {
  /// What a ResNet's stem and a VGG's head are made for: imagenet (as in torchvision) or cifar
  /// (32x32 images). The other models have one form.
  std::string variant = "imagenet";
  double dropout = -1;  ///< probability; negative: as the model's source has it
  /// default (as the model's source has it), kaiming or xavier (models/init.h).
  std::string init = "default";
  bool native_ops = false;  ///< our own convolutions and poolings (models/ops.h); LeNets alone
};

}  // namespace millrace::train
