// Adds up an evaluation, exactly.
#pragma once

#include <torch/torch.h>

#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// No samples yet.
Evaluation empty_evaluation(int classes);
/// Adds a batch's answers: `logits` N x classes on any device, `labels` N on the host. Everything
/// is summed from host copies in double.
void add(Evaluation& sum, const torch::Tensor& logits, const torch::Tensor& labels);

/// All sums as one vector of doubles, and back: what ranks add up. Counts stay exact up to 2^53.
torch::Tensor to_tensor(const Evaluation& sum);
Evaluation from_tensor(const torch::Tensor& values, int classes);

}  // namespace millrace::train
