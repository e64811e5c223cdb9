// Autocast through LibTorch, and the loss scale's updates.
#include "strategies/torch/amp.h"

#include <ATen/autocast_mode.h>

namespace millrace::train {

Autocast::Autocast(const std::string& amp, torch::Device device)
    : on_(amp != "off"), device_(device.type()) {
  if (!on_) return;
  before_ = at::autocast::is_autocast_enabled(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, amp == "f16" ? torch::kFloat16 : torch::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!on_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, before_);
}

GradScaler::GradScaler(bool enabled, torch::Device device) {
  if (!enabled) return;
  scale_ = torch::full({}, 65536.f, torch::TensorOptions(device).dtype(torch::kFloat32));
  growth_ = torch::zeros({}, torch::TensorOptions(device).dtype(torch::kInt32));
}

torch::Tensor GradScaler::scaled(const torch::Tensor& loss) const {
  return scale_.defined() ? loss * scale_.to(loss.device()) : loss;
}

torch::Tensor GradScaler::unscale(const std::vector<torch::Tensor>& gradients) {
  if (!scale_.defined()) return {};
  torch::Tensor found_inf = torch::zeros_like(scale_);
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, scale_.reciprocal());
  return found_inf;
}

void GradScaler::update(const torch::Tensor& found_inf) {
  if (!scale_.defined()) return;
  constexpr double kGrowth = 2;
  constexpr double kBackoff = 0.5;
  constexpr std::int64_t kInterval = 2000;
  at::_amp_update_scale_(scale_, growth_, found_inf, kGrowth, kBackoff, kInterval);
}

NamedTensors GradScaler::state() {
  if (!scale_.defined()) return {};
  return {{"scaler/scale", scale_}, {"scaler/growth", growth_}};
}

}  // namespace millrace::train
