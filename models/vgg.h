// VGG-16 and VGG-19, and the variant that the studies train on CIFAR-10.
//
// Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition" (2014),
// configurations D and E. Names, batch norm and initialisation follow torchvision.
#pragma once

#include "models/classifier.h"

namespace millrace::train {

/// Linear layers after the five blocks.
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

/// features: five blocks of 64, 128, 256, 512 and 512 channels; 3x3 convolutions with padding 1,
/// and max pooling at the end of each block; then classifier. The heads imagenet and cifar are
/// initialised as in torchvision, the head study as PyTorch's layers.
class Vgg : public Classifier {
 public:
  /// `dropout` is a probability; negative: 0.5. Throws UsageError, with `name`, for images below
  /// 32x32.
  Vgg(std::string_view name, const VggVariant& variant, const ModelShape& shape, double dropout);
  torch::Tensor forward(const torch::Tensor& images) override;

 private:
  int pooled_;  ///< side of the maps that the head receives
  torch::nn::Sequential features_, classifier_;
};

}  // namespace millrace::train
