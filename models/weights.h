// A module's parameters and buffers: to and from safetensors, and as one number.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <string>

namespace millrace {

/// Writes every parameter and buffer under its name. Throws RunError.
void save_weights(const torch::nn::Module& module, const std::filesystem::path& file);

/// Replaces every parameter and buffer by the tensor of the same name. Throws DataError listing
/// all names that are missing, too many, or of another shape or type; then nothing has changed.
void load_weights(torch::nn::Module& module, const std::filesystem::path& file);

/// xxh3 of the values in row-major order, tensor after tensor in the order of their names;
/// 16 hex digits.
std::string hash_weights(const torch::nn::Module& module);

}  // namespace millrace
