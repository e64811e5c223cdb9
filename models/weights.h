// A module's parameters and buffers: to and from safetensors, and as one number.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace millrace::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Parameters and buffers in the order of their names; the module's own tensors.
NamedTensors state_of(const torch::nn::Module& module);

/// Writes tensors under their names, row-major. Throws RunError.
void save_tensors(const NamedTensors& tensors, const std::filesystem::path& file);
/// Replaces the values of `tensors` by those of the same names. Throws DataError listing all names
/// that are missing, too many, or of another shape or type; then nothing has changed. `owner` says
/// what they belong to ("the model"), `hint` what to check.
void load_tensors(const NamedTensors& tensors, const std::filesystem::path& file,
                  const std::string& owner, const std::string& hint);

/// Writes every parameter and buffer under its name. Throws RunError.
void save_weights(const torch::nn::Module& module, const std::filesystem::path& file);

/// Replaces every parameter and buffer; throws as load_tensors() does.
void load_weights(torch::nn::Module& module, const std::filesystem::path& file);

/// xxh3 of the values in row-major order, tensor after tensor in the order of their names;
/// 16 hex digits.
std::string hash_weights(const torch::nn::Module& module);

}  // namespace millrace::train
