// Optimisers in one fused call over all parameters; torch::optim walks them one by one.
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

  /// Applies the parameters' gradients, all of which must be there. Where `found_inf` is defined
  /// and not 0, nothing changes (mixed precision found a gradient that is not finite).
  virtual void step(double lr, const torch::Tensor& found_inf) = 0;
  /// What it remembers between steps, by name; the tensors are its own.
  virtual NamedTensors state() = 0;
};

/// sgd (momentum after Sutskever et al., 2013), adam (Kingma and Ba, 2015) or adamw (Loshchilov and
/// Hutter, 2019), as torch.optim defines them. `parameters` are named as in the model. Throws
/// UsageError for options that contradict each other.
std::unique_ptr<Optimizer> make_optimizer(const StrategyOptions& options, NamedTensors parameters);

}  // namespace millrace::train
