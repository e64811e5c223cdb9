// Optimisers that update all parameters in one fused call; torch::optim visits them one by one.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/weights.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Applies the parameters' gradients, all of which must exist. Changes nothing if `found_inf` is
  /// defined and not 0 (mixed precision found a gradient that is not finite).
  virtual void step(double lr, const torch::Tensor& found_inf) = 0;
  /// Returns the state kept between steps, by name. The tensors are the optimiser's own.
  virtual NamedTensors state() = 0;
};

/// Makes sgd (momentum after Sutskever et al., 2013), adam (Kingma and Ba, 2015) or adamw
/// (Loshchilov and Hutter, 2019), as torch.optim defines them. `parameters` are named as in the
/// model. Throws UsageError for contradictory options.
std::unique_ptr<Optimizer> make_optimizer(const StrategyOptions& options, NamedTensors parameters);

// Exponential moving average of a model's weights. If kept, evaluations use it.

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
