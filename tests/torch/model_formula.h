// Weights of a whole model that C++ and Python compute alike (tests/golden/make_models.py), from
// the tensors' names.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/torch/formula.h"

namespace millrace::test {

/// Returns the 32-bit FNV-1a hash of a name, formula()'s salt.
inline std::uint32_t salt_of(std::string_view name) {
  std::uint32_t hash = 0x811C9DC5u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

/// Returns a tensor of formula(i, salt_of(name), scale).
inline torch::Tensor formula_tensor(torch::IntArrayRef shape, std::string_view name, float scale) {
  torch::Tensor values = torch::empty(shape);
  float* const value = values.data_ptr<float>();
  const std::uint32_t salt = salt_of(name);
  for (std::uint32_t i = 0; i < values.numel(); ++i) value[i] = formula(i, salt, scale);
  return values;
}

/// Fills weights with He's standard deviations, so that deep networks neither vanish nor overflow;
/// variances near 1.
inline void fill_by_name(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  const auto fill = [](const std::string& name, torch::Tensor value) {
    if (value.dim() >= 2) {
      const double fan_in = static_cast<double>(value[0].numel());
      value.copy_(formula_tensor(value.sizes(), name, static_cast<float>(std::sqrt(24 / fan_in))));
    } else if (name.ends_with("num_batches_tracked")) {
      value.zero_();
    } else if (name.ends_with(".weight") || name.ends_with("running_var")) {  // batch norm
      value.copy_(1 + formula_tensor(value.sizes(), name, 0.5f));
    } else {
      value.copy_(formula_tensor(value.sizes(), name, 0.25f));
    }
  };
  for (const auto& parameter : model.named_parameters()) fill(parameter.key(), parameter.value());
  for (const auto& buffer : model.named_buffers()) fill(buffer.key(), buffer.value());
}

/// Changes a model as a strategy on the CPU does.
inline void to_channels_last(torch::nn::Module& model) {
  for (torch::Tensor& parameter : model.parameters())
    if (parameter.dim() == 4)
      parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
}

}  // namespace millrace::test
