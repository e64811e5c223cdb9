// The fused step behind Sgd.
#include "strategies/sgd.h"

#include <utility>

#include "pipeline/error.h"

namespace millrace {

Sgd::Sgd(std::vector<torch::Tensor> parameters, const SgdOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  if (options_.nesterov && options_.momentum <= 0)
    throw UsageError("train.nesterov=true needs a momentum",
                     "set train.momentum, to 0.9 for example, or train.nesterov=false");
  if (options_.momentum == 0) return;
  for (const torch::Tensor& parameter : parameters_)
    momenta_.push_back(torch::zeros_like(parameter));
}

void Sgd::step() {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const torch::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
  constexpr double kDampening = 0;
  constexpr bool kMaximize = false;
  at::_fused_sgd_(parameters_, gradients, momenta_, options_.weight_decay, options_.momentum,
                  options_.lr, kDampening, options_.nesterov, kMaximize, first_);
  first_ = false;
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

}  // namespace millrace
