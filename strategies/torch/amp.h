// Mixed precision: runs the forward pass's ops in bf16 or f16 where that is safe, and scales the
// loss so that small gradients do not vanish in f16 (Micikevicius et al., 2018).
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "strategies/torch/optimizer.h"

namespace millrace::train {

/// Enables autocast on the calling thread for its lifetime. The backward pass belongs outside.
class Autocast {
 public:
  /// `amp` is off, bf16 or f16.
  Autocast(const std::string& amp, torch::Device device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  c10::DeviceType device_;
  bool before_ = false;
};

/// Equivalent of torch.amp.GradScaler with its defaults: starts at 65536, halves after a step with
/// gradients that are not finite (and skips that step), doubles after 2000 good steps.
class GradScaler {
 public:
  /// Does nothing unless `enabled` (f16 only).
  GradScaler(bool enabled, torch::Device device);

  torch::Tensor scaled(const torch::Tensor& loss) const;
  /// Divides the gradients by the scale. Returns a tensor that says whether a gradient was not
  /// finite; undefined if the scaler is off.
  torch::Tensor unscale(const std::vector<torch::Tensor>& gradients);
  void update(const torch::Tensor& found_inf);
  /// Returns the scale and its age, for a checkpoint.
  NamedTensors state();

 private:
  torch::Tensor scale_, growth_;  ///< undefined if the scaler is off
};

}  // namespace millrace::train
