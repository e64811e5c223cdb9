// Interface between models and strategies: images in, one logit per class out.
#pragma once

#include <torch/torch.h>

#include "millrace/image.h"

namespace millrace::train {

/// Shape that a model is built for.
struct ModelShape {
  int channels = 1;  ///< channels of an image
  Size input;        ///< size of an image
  int classes = 10;
};

/// Base of all models. Children are registered under torchvision's names, so that weights can be
/// exchanged in both directions.
class Classifier : public torch::nn::Module {
 public:
  /// Returns N x classes logits for N x channels x height x width images in f32.
  virtual torch::Tensor forward(const torch::Tensor& images) = 0;
};

}  // namespace millrace::train
