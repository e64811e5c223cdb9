// Numerical gradients by central differences, to check an op's own; LibTorch has none in C++.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace millrace::test {

using TensorFunction = std::function<torch::Tensor(const std::vector<torch::Tensor>&)>;

/// Returns the largest difference between autograd's and the numerical gradient of a weighted sum
/// of f(inputs), over every element of every input. Inputs are f64 and must not lie on a kink of
/// `f`. For smooth parts the difference is of the order of step^2 + 1e-16 / step.
inline double gradient_error(const TensorFunction& f, std::vector<torch::Tensor> inputs,
                             double step = 1e-5) {
  for (torch::Tensor& input : inputs) input = input.detach().clone().requires_grad_(true);
  const torch::Tensor output = f(inputs);
  const torch::Tensor weights = torch::rand_like(output) + 0.5;
  const auto gradients = torch::autograd::grad({(output * weights).sum()}, inputs);
  const torch::NoGradGuard no_grad;
  const auto weighted = [&] { return (f(inputs) * weights).sum().item<double>(); };
  double worst = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const torch::Tensor analytic = gradients[i].contiguous();
    double* const values = inputs[i].data_ptr<double>();  // clones are dense, in memory order
    const torch::Tensor numerical = torch::empty_like(inputs[i]);
    for (std::int64_t k = 0; k < inputs[i].numel(); ++k) {
      const double kept = values[k];
      values[k] = kept + step;
      const double above = weighted();
      values[k] = kept - step;
      const double below = weighted();
      values[k] = kept;
      numerical.data_ptr<double>()[k] = (above - below) / (2 * step);
    }
    if (analytic.numel() > 0)
      worst = std::max(worst, (numerical - analytic).abs().max().item<double>());
  }
  return worst;
}

}  // namespace millrace::test
