// VGG-16 and VGG-19, and the form of it that the studies train on CIFAR-10.
//
// Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition"
// (2014), configurations D and E; names, batch norm and initialisation as in torchvision.
#pragma once

#include "models/classifier.h"

namespace millrace::train {

/// The linear layers behind the five blocks.
enum class VggHead {
  imagenet,  ///< average pooling to 7x7, 4096, 4096, classes; ReLU and dropout (0.5) between
  cifar,     ///< average pooling to 1x1, classes
  study,     ///< average pooling to 1x1, 256, 128, classes; ReLU and dropout (0.5) between
};

struct VggVariant {
  int depth;  ///< convolutions of the third, fourth and fifth block: 3 (VGG-16) or 4 (VGG-19)
  bool batch_norm;
  VggHead head;
};

/// features: five blocks of 64, 128, 256, 512 and 512 channels, convolutions 3x3 with padding 1,
/// each block ended by max pooling; then classifier. Heads imagenet and cifar are initialised as
/// torchvision does it, study as PyTorch's layers are.
class Vgg : public Classifier {
 public:
  /// `dropout`: probability, negative for 0.5. Throws UsageError, naming `name`, for images below
  /// 32x32.
  Vgg(std::string_view name, const VggVariant& variant, const ModelShape& shape, double dropout);
  torch::Tensor forward(const torch::Tensor& images) override;

 private:
  int pooled_;  ///< side of the maps that the head takes
  torch::nn::Sequential features_, classifier_;
};

}  // namespace millrace::train
