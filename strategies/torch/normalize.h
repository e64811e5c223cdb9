// What output.normalize=device leaves to the strategy: levels 0..255 become the values that a model
// takes, on the model's device, from a quarter of the bytes that would otherwise be sent there.
#pragma once

#include <torch/torch.h>

#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// (level / 255 - mean) / std, every operation rounded to f32: on a device that rounds to nearest
/// the same bits as augment/plan/store.h makes.
class Normalization {
 public:
  Normalization(const StrategyOptions& options, torch::Device device);

  /// `images`: N x channels x height x width on the device. f32 is returned as it is.
  torch::Tensor operator()(const torch::Tensor& images) const;

 private:
  torch::Tensor levels_, mean_, std_;  ///< undefined for f32; 1 or 1 x channels x 1 x 1
};

}  // namespace millrace::train
