// What every model is to a strategy: images in, one logit a class out.
#pragma once

#include <torch/torch.h>

#include "millrace/image.h"

namespace millrace::train {

/// What a model is built for.
struct ModelShape {
  int channels = 1;  ///< of an image
  Size input;        ///< of an image
  int classes = 10;
};

/// Children are registered under torchvision's names, so that weights go both ways.
class Classifier : public torch::nn::Module {
 public:
  /// `images`: N x channels x height x width, f32. Returns N x classes.
  virtual torch::Tensor forward(const torch::Tensor& images) = 0;
};

}  // namespace millrace::train
