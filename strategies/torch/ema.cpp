// Updates and swaps averaged weights.
#include "strategies/torch/ema.h"

namespace millrace::train {

Ema::Ema(const torch::nn::Module& model, double decay) : decay_(decay) {
  if (decay_ == 0) return;
  values_ = state_of(model);
  for (const auto& [name, value] : values_) averages_.emplace_back(name, value.detach().clone());
  updates_ = torch::zeros({}, torch::kLong);
}

void Ema::update() {
  const torch::NoGradGuard no_grad;
  const bool first = updates_.item<std::int64_t>() == 0;
  updates_.add_(1);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const torch::Tensor value = values_[i].second.detach();
    if (value.is_floating_point() && !first)
      averages_[i].second.lerp_(value, 1 - decay_);
    else
      averages_[i].second.copy_(value);
  }
}

NamedTensors Ema::count() const {
  if (!updates_.defined()) return {};
  return {{"ema/updates", updates_}};
}

void Ema::swap() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const torch::Tensor kept = values_[i].second.detach();
    values_[i].second.set_data(averages_[i].second);
    averages_[i].second = kept;
  }
}

}  // namespace millrace::train
