// Converts levels to normalised values on the device.
#include "strategies/torch/normalize.h"

namespace millrace::train {
namespace {

torch::Tensor a_channel(const std::vector<double>& values, torch::Device device) {
  return torch::tensor(values, torch::kFloat).view({1, -1, 1, 1}).to(device);
}

}  // namespace

Normalization::Normalization(const StrategyOptions& options, torch::Device device) {
  if (!options.normalize) return;
  // Divisors are tensors: for plain numbers CUDA multiplies by the reciprocal, which rounds
  // differently.
  levels_ = torch::full({1}, 255.0f, torch::TensorOptions(device));
  mean_ = a_channel(options.mean, device);
  std_ = a_channel(options.std, device);
}

torch::Tensor Normalization::operator()(const torch::Tensor& images) const {
  if (!levels_.defined()) return images;
  return images.to(torch::kFloat).div_(levels_).sub_(mean_).div_(std_);
}

}  // namespace millrace::train
