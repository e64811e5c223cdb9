// Declares the recipe keys of the model. Independent of LibTorch.
#include "models/model_keys.h"

#include "models/descriptions.h"
#include "pipeline/readers/data_set.h"

namespace millrace::train {

std::vector<Param> model_keys() {
  return {
      Param::choice("model.name", "lenet5", model_names(),
                    "lenet5 (5x5 kernels), lenet5_plain (3x3), lenet5_cifar (3x3, padded); the "
                    "VGGs and ResNets are torchvision's, vgg_cifar is vgg19_bn with a small head"),
      Param::choice("model.variant", "imagenet", {"imagenet", "cifar"},
                    "input size that a ResNet's stem and a VGG's head are designed for"),
      Param::number("model.dropout", -1, -1, 1,
                    "dropout probability; -1: the architecture's default"),
      Param::choice("model.init", "default", {"default", "kaiming", "xavier"},
                    "default: as the model's source has it; kaiming: normal over fan-in; xavier: "
                    "uniform"),
      Param::integer("model.classes", 0, 0, pipeline::kMaxClasses,
                     "number of classes; 0: as in the data set"),
      Param::text("model.weights", "", "safetensors file with the initial weights"),
      Param::choice("model.ops", "auto", {"auto", "torch", "native"},
                    "implementation of convolutions and pooling: LibTorch's, millrace's own "
                    "(docs/reference/native-ops.md), or the faster one by a table of measurements"),
  };
}

}  // namespace millrace::train
