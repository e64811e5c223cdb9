// Sums the gradients of replicas on separate devices in few calls: deep networks have many small
// gradients, and a call for each would be slow.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "strategies/torch/device_sum.h"

namespace millrace::train {

/// Bytes per sum, unless one gradient alone is larger. c10d's Reducer uses this size too.
inline constexpr std::int64_t kSumBytes = std::int64_t{25} << 20;

/// Adds all replicas' gradients to those of the first. `gradients[r]` lies on replica r's device,
/// in the order of the parameters, dense and with the same layout on all devices. The contents of
/// the others are then undefined.
void sum_gradients(const std::vector<std::vector<torch::Tensor>>& gradients, DeviceSum& sum,
                   std::int64_t bytes = kSumBytes);

}  // namespace millrace::train
