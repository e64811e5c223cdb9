// The convolutions and poolings that models call: LibTorch's, or our own (models/native/ops.h).
#pragma once

#include <torch/torch.h>

namespace millrace::train {

/// Takes layers of LibTorch for their parameters, so names and initial weights are the same.
class Ops {
 public:
  explicit Ops(bool native) : native_(native) {}

  torch::Tensor conv2d(const torch::Tensor& images, torch::nn::Conv2d& layer) const;
  /// Windows of side `kernel` side by side.
  torch::Tensor max_pool2d(const torch::Tensor& images, std::int64_t kernel) const;
  /// max_pool2d(relu(conv2d(images)), 2); the native one in one go where it can.
  torch::Tensor conv_relu_pool(const torch::Tensor& images, torch::nn::Conv2d& layer) const;

 private:
  bool native_;
};

}  // namespace millrace::train
