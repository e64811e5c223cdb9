// Convolutions and poolings for models: LibTorch's or the native ones (models/native/ops.h).
#pragma once

#include <torch/torch.h>

namespace millrace::train {

/// Takes LibTorch's layers for their parameters, so that names and initial weights are the same.
class Ops {
 public:
  explicit Ops(bool native) : native_(native) {}

  torch::Tensor conv2d(const torch::Tensor& images, torch::nn::Conv2d& layer) const;
  /// Pools non-overlapping windows of side `kernel`.
  torch::Tensor max_pool2d(const torch::Tensor& images, std::int64_t kernel) const;
  /// Computes max_pool2d(relu(conv2d(images)), 2); fused by the native op where it can.
  torch::Tensor conv_relu_pool(const torch::Tensor& images, torch::nn::Conv2d& layer) const;

 private:
  bool native_;
};

}  // namespace millrace::train
