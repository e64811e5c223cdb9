// Counts correct answers while a model trains.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace millrace::train {

/// Counts a replica's correct answers where its logits are, on CUDA by a kernel behind the forward
/// pass, which a graph may capture.
class CorrectCounter {
 public:
  explicit CorrectCounter(torch::Device device);

  /// Adds a batch: f32 `logits` N x classes, `targets` N labels on the same device. Adds nothing if
  /// `targets` are probabilities. The first of equal logits is the answer.
  void add(const torch::Tensor& logits, const torch::Tensor& targets);
  /// Returns the count since the last call, waiting for the device.
  std::uint64_t take();

 private:
  torch::Tensor count_;  ///< one i64
};

}  // namespace millrace::train
