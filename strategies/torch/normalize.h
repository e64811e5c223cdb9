// Normalisation on the device (output.normalize=device): converts levels 0..255 to the model's
// values there, so that a quarter of the bytes is sent.
#pragma once

#include <torch/torch.h>

#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// Computes (level / 255 - mean) / std, rounding every operation to f32. Devices that round to
/// nearest give the bits of augment/plan/store.h.
class Normalization {
 public:
  Normalization(const StrategyOptions& options, torch::Device device);

  /// Converts N x channels x height x width images on the device. Returns f32 unchanged.
  torch::Tensor operator()(const torch::Tensor& images) const;

 private:
  torch::Tensor levels_, mean_, std_;  ///< undefined for f32; shape 1 or 1 x channels x 1 x 1
};

}  // namespace millrace::train
