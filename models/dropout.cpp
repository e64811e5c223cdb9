// Draws dropout masks from the model's own generator.
#include "models/dropout.h"

namespace millrace::train {

torch::Tensor DropoutImpl::forward(const torch::Tensor& input) {
  if (!is_training() || p_ == 0) return input;
  if (p_ == 1) return input * 0;
  torch::Tensor kept = torch::empty_like(input);
  if (input.is_cpu())
    kept.bernoulli_(1 - p_, generator_);
  else
    kept.bernoulli_(1 - p_);
  return input * kept.div_(1 - p_);
}

void seed_dropout(torch::nn::Module& model, std::uint64_t seed) {
  for (const auto& module : model.modules())
    if (auto* const dropout = module->as<DropoutImpl>(); dropout != nullptr)
      dropout->seed(seed += 0x9e3779b97f4a7c15u);
}

}  // namespace millrace::train
