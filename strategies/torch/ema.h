// Exponential moving average of a model's weights. If kept, evaluations use it.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "models/weights.h"

namespace millrace::train {

/// Equivalent of torchvision's ExponentialMovingAverage with buffers. The first update copies the
/// values; every later one sets average = decay * average + (1 - decay) * value for parameters and
/// floating-point buffers. Other buffers are copied.
class Ema {
 public:
  /// Starts from the model's values. Does nothing if `decay` is 0.
  Ema(const torch::nn::Module& model, double decay);

  explicit operator bool() const { return decay_ > 0; }
  void update();
  /// Exchanges the model's values with the averages. A second call undoes it.
  void swap();
  /// Returns the averages under the model's names.
  NamedTensors state() const { return averages_; }
  /// Returns the number of updates, for a checkpoint.
  NamedTensors count() const;

 private:
  double decay_;
  NamedTensors values_;    ///< the model's own tensors
  NamedTensors averages_;  ///< in the same order as values_
  torch::Tensor updates_;  ///< undefined if nothing is averaged
};

/// Puts the averages into the model for its lifetime.
class EmaInPlace {
 public:
  explicit EmaInPlace(Ema& ema) : ema_(ema) { ema_.swap(); }
  ~EmaInPlace() { ema_.swap(); }
  EmaInPlace(const EmaInPlace&) = delete;
  EmaInPlace& operator=(const EmaInPlace&) = delete;

 private:
  Ema& ema_;
};

}  // namespace millrace::train
