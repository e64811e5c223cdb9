// Gradients of replicas on devices of their own, brought together in few sums: a network of many
// layers has many small ones, which are not worth a sum each.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "strategies/torch/device_sum.h"

namespace millrace::train {

/// What is summed at a time, unless one gradient alone is larger; as c10d's Reducer has it.
inline constexpr std::int64_t kSumBytes = std::int64_t{25} << 20;

/// `gradients[r]`: of replica r, on its device, in the order of the parameters; dense, and laid out
/// alike on all devices. Adds those of all replicas to the first one's; the others' are of no use
/// then.
void sum_gradients(const std::vector<std::vector<torch::Tensor>>& gradients, DeviceSum& sum,
                   std::int64_t bytes = kSumBytes);

}  // namespace millrace::train
