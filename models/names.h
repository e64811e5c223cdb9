// Names of the models, as `model.name` takes them: the only list. models/registry.cpp has a factory
// for each, which a test checks.
#pragma once

#include <array>
#include <string_view>

namespace millrace::train {

inline constexpr std::array<std::string_view, 14> kModelNames{
    "lenet5",        // 5x5 convolutions, the first padded
    "lenet5_plain",  // 3x3 convolutions, no padding (study S0)
    "lenet5_cifar",  // 3x3 convolutions, padded (study S1)
    "linear",        // one layer
    "mlp",           // two linear layers (study S4's pure_linear)
    "simple_conv",   // one convolution, two linear layers (study S4)
    "vgg16",         // as in torchvision
    "vgg16_bn",      // with batch norm
    "vgg19",         // study S2, with model.variant=cifar
    "vgg19_bn",
    "vgg_cifar",  // vgg19_bn's convolutions under three linear layers (study S1)
    "resnet18",   // as in torchvision
    "resnet34",
    "resnet50",  // study S3
};

}  // namespace millrace::train
