// Mixed precision: the ops of a forward pass in bf16 or f16 where that is safe, and a scale for the
// loss that keeps f16's small gradients from vanishing (Micikevicius et al., 2018).
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "strategies/torch/optimizer.h"

namespace millrace::train {

/// Autocast for the calling thread as long as this lives. Backward belongs outside.
class Autocast {
 public:
  /// `amp`: off, bf16 or f16.
  Autocast(const std::string& amp, torch::Device device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  c10::DeviceType device_;
  bool before_ = false;
};

/// torch.amp.GradScaler with its defaults: from 65536, halved after a step whose gradients are not
/// finite (and which is left out), doubled after 2000 good ones.
class GradScaler {
 public:
  /// Without `enabled` (anything but f16) it does nothing.
  GradScaler(bool enabled, torch::Device device);

  torch::Tensor scaled(const torch::Tensor& loss) const;
  /// Divides the gradients by the scale. The tensor says whether one was not finite; undefined
  /// where the scaler is off.
  torch::Tensor unscale(const std::vector<torch::Tensor>& gradients);
  void update(const torch::Tensor& found_inf);
  /// The scale and its age, for a checkpoint.
  NamedTensors state();

 private:
  torch::Tensor scale_, growth_;  ///< undefined where the scaler is off
};

}  // namespace millrace::train
