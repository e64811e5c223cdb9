// A module's parameters and buffers: saved to and loaded from safetensors, and hashed.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace millrace::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Returns parameters and buffers in the order of their names. The tensors are the module's own.
NamedTensors state_of(const torch::nn::Module& module);

/// Values of tensors at one moment, in host memory.
class TensorValues {
 public:
  /// Copies the values, into the memory of the last call where the tensors have the same form.
  void take(const NamedTensors& tensors);
  /// Writes them under their names, row-major. Any thread may call it: it runs no kernel of
  /// LibTorch, which would take threads of its own. Throws RunError.
  void save(const std::filesystem::path& file) const;

 private:
  NamedTensors values_;
};

/// Writes tensors under their names, row-major. Throws RunError.
void save_tensors(const NamedTensors& tensors, const std::filesystem::path& file);
/// Replaces the values of `tensors` by those with equal names in `file`. Throws DataError with all
/// names that are missing, unexpected, or of another shape or type, and then changes nothing.
/// `owner` names what they belong to ("the model"); `hint` says what to check.
void load_tensors(const NamedTensors& tensors, const std::filesystem::path& file,
                  const std::string& owner, const std::string& hint);

/// Writes every parameter and buffer under its name. Throws RunError.
void save_weights(const torch::nn::Module& module, const std::filesystem::path& file);

/// Replaces every parameter and buffer. Throws as load_tensors() does.
void load_weights(torch::nn::Module& module, const std::filesystem::path& file);

/// Returns the xxh3 of the values in row-major order, tensor after tensor in the order of their
/// names, as 16 hex digits.
std::string hash_weights(const torch::nn::Module& module);

}  // namespace millrace::train
