// An exponential moving average of a model's weights: what is evaluated when it is kept.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "models/weights.h"

namespace millrace::train {

/// torchvision's ExponentialMovingAverage with buffers: the first update takes the values as they
/// are, every other one average = decay * average + (1 - decay) * value, for parameters and
/// floating-point buffers; other buffers are copied.
class Ema {
 public:
  /// Starts from the model's values. `decay` 0: does nothing.
  Ema(const torch::nn::Module& model, double decay);

  explicit operator bool() const { return decay_ > 0; }
  void update();
  /// Exchanges the model's values with the averages; a second call undoes it.
  void swap();
  /// The averages under the model's names.
  NamedTensors state() const { return averages_; }
  /// How many updates there were, for a checkpoint.
  NamedTensors count() const;

 private:
  double decay_;
  NamedTensors values_;    ///< the model's own
  NamedTensors averages_;  ///< in the same order
  torch::Tensor updates_;  ///< undefined where nothing is averaged
};

/// The model holds the averages for as long as this lives.
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
