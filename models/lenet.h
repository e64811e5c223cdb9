// LeNet-5: two convolutions with pooling, three linear layers.
//
// LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition" (1998),
// in the form of today's tutorials: ReLU and max pooling instead of sigmoids and averages. The
// studies use three variants, which differ only in the convolutions.
#pragma once

#include "models/classifier.h"
#include "models/ops.h"

namespace millrace::train {

/// Convolutions of a variant: side of the square kernels, zero padding of the first and the second.
struct LeNetVariant {
  int kernel;
  int padding1;
  int padding2;
};

inline constexpr LeNetVariant kLeNet5{5, 2, 0};       ///< 28x28: 400 features
inline constexpr LeNetVariant kLeNet5Plain{3, 0, 0};  ///< 28x28: 400 features
inline constexpr LeNetVariant kLeNet5Cifar{3, 1, 1};  ///< 32x32: 1024 features

/// conv1(→6), ReLU, pool 2, conv2(6→16), ReLU, pool 2, fc1(→120), ReLU, fc2(→84), ReLU,
/// fc3(→classes). fc1 has as many inputs as the images' size gives.
class LeNet : public Classifier {
 public:
  /// Throws UsageError, with `name`, for images too small for two convolutions and two poolings.
  LeNet(std::string_view name, const LeNetVariant& variant, const ModelShape& shape,
        bool native_ops);
  torch::Tensor forward(const torch::Tensor& images) override;

 private:
  Ops ops_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::Linear fc1_{nullptr}, fc2_{nullptr}, fc3_{nullptr};
};

}  // namespace millrace::train
