// Stochastic gradient descent, as torch.optim.SGD defines it (momentum after Sutskever et al.,
// 2013), in one fused call over all parameters: torch::optim::SGD walks them one by one.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace millrace {

struct SgdOptions {
  double lr = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class Sgd {
 public:
  /// Throws UsageError for nesterov without momentum, which is not defined.
  Sgd(std::vector<torch::Tensor> parameters, const SgdOptions& options);

  /// Applies the gradients and drops them, so that the next backward writes instead of adds.
  /// Every parameter must have a gradient.
  void step();

 private:
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> momenta_;  ///< empty without momentum
  SgdOptions options_;
  bool first_ = true;  ///< the first step sets the momenta instead of adding to them
};

}  // namespace millrace
