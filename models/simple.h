// Small models that study S4 compares with LeNet: linear layers alone, or one convolution, on the
// same images. Initialised as PyTorch's layers.
#pragma once

#include "models/classifier.h"

namespace millrace::train {

/// fc(pixels→classes).
class LinearModel : public Classifier {
 public:
  explicit LinearModel(const ModelShape& shape);
  torch::Tensor forward(const torch::Tensor& images) override;

 private:
  torch::nn::Linear fc_{nullptr};
};

/// fc1(pixels→128), ReLU, fc2(→classes).
class Mlp : public Classifier {
 public:
  explicit Mlp(const ModelShape& shape);
  torch::Tensor forward(const torch::Tensor& images) override;

 private:
  torch::nn::Linear fc1_{nullptr}, fc2_{nullptr};
};

/// conv1(→6, 3x3, padding 1), ReLU, fc1(→128), ReLU, fc2(→classes). No pooling.
class SimpleConv : public Classifier {
 public:
  explicit SimpleConv(const ModelShape& shape);
  torch::Tensor forward(const torch::Tensor& images) override;

 private:
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::Linear fc1_{nullptr}, fc2_{nullptr};
};

}  // namespace millrace::train
