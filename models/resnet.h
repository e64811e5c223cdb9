// ResNet-18, -34 and -50.
//
// He, Zhang, Ren, Sun, "Deep residual learning for image recognition" (2015). Names and
// initialisation follow torchvision, which puts the bottleneck's stride on its 3x3 convolution.
#pragma once

#include <array>

#include "models/classifier.h"
#include "models/layers.h"

namespace millrace::train {

struct ResNetVariant {
  bool bottleneck;            ///< blocks of 1x1, 3x3, 1x1 convolutions instead of two 3x3
  std::array<int, 4> blocks;  ///< number of blocks in layer1 to layer4
};

inline constexpr ResNetVariant kResNet18{false, {2, 2, 2, 2}};
inline constexpr ResNetVariant kResNet34{false, {3, 4, 6, 3}};
inline constexpr ResNetVariant kResNet50{true, {3, 4, 6, 3}};

/// First layers of the network.
enum class ResNetStem {
  imagenet,  ///< convolution 7x7 with stride 2, then max pooling 3x3 with stride 2
  cifar,     ///< convolution 3x3 with stride 1
};

/// conv1, bn1, layer1 to layer4 (64, 128, 256, 512 channels, four times as many after a bottleneck;
/// all but the first halve the sides), average pooling, fc. Takes images of any size.
class ResNet : public Classifier {
 public:
  ResNet(const ResNetVariant& variant, ResNetStem stem, const ModelShape& shape);
  torch::Tensor forward(const torch::Tensor& images) override;

 private:
  ResNetStem stem_;
  torch::nn::Conv2d conv1_{nullptr};
  BatchNorm bn1_{nullptr};
  std::array<torch::nn::Sequential, 4> layers_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace millrace::train
