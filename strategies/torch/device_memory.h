// A device's memory as its caching allocator counts it.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "strategies/trainer/memory_fit.h"

namespace millrace::train {

/// For any device but the CPU.
std::unique_ptr<DeviceMemory> make_device_memory(torch::Device device);

}  // namespace millrace::train
