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

}  // namespace millrace::train
