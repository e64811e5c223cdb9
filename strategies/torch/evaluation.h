// Adds up evaluations and counts correct answers, exactly.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>

#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// Returns an evaluation without samples.
Evaluation empty_evaluation(int classes);
/// Adds a batch's results: `logits` N x classes on any device, `labels` N on the host. Sums host
/// copies in double. Calls `each`, unless it is empty, for every sample.
void add(Evaluation& sum, const torch::Tensor& logits, const torch::Tensor& labels,
         const std::function<void(const Prediction&)>& each);

/// Convert all sums to one vector of doubles, and back, so that ranks can add them. Counts are
/// exact up to 2^53.
torch::Tensor to_tensor(const Evaluation& sum);
Evaluation from_tensor(const torch::Tensor& values, int classes);

/// Counts a replica's correct answers where its logits are: on the CPU in place, otherwise by
/// kernels behind the forward pass, which a CUDA graph may capture.
class CorrectCounter {
 public:
  explicit CorrectCounter(torch::Device device);

  /// Adds a batch: f32 `logits` N x classes, `targets` N labels on the same device. Adds nothing if
  /// `targets` are probabilities. The first of equal logits is the answer.
  void add(const torch::Tensor& logits, const torch::Tensor& targets);
  /// Returns the count since the last call, waiting for the device.
  std::uint64_t take();

 private:
  std::uint64_t on_host_ = 0;
  torch::Tensor on_device_;  ///< i64; undefined on the CPU
};

}  // namespace millrace::train
