// Device memory as counted by the caching allocator.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "strategies/trainer/memory_fit.h"

namespace millrace::train {

/// Returns the memory of any device except the CPU.
std::unique_ptr<DeviceMemory> make_device_memory(torch::Device device);

}  // namespace millrace::train
