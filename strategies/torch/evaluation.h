// Adds up evaluations, exactly.
#pragma once

#include <torch/torch.h>

#include <functional>

#include "strategies/trainer/evaluation.h"

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

}  // namespace millrace::train
