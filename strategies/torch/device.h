// Maps train.device and its options to torch.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>

#include "strategies/torch/cuda_library.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// Returns the CUDA index of "cuda" or "cuda:N", and -1 for "cpu". Throws UsageError.
int device_index(const std::string& device);
/// Loads the module for the options' device, or for all devices of its replicas. Empty for the CPU.
/// Throws DeviceError.
std::optional<CudaLibrary> load_cuda(const StrategyOptions& options);
torch::Device torch_device(const std::string& device);

/// Keeps freed memory in the process, because every step allocates the tensors that the previous
/// step freed. If the allocator returned them to the kernel in between, LeNet's step would take
/// some 900 page faults; keeping them costs a few megabytes. Affects the whole process.
void keep_freed_memory();

/// Converts the parameters to channels_last, which decides the memory format of the whole network.
/// oneDNN and the pooling kernels are faster on pixels than on planes: LeNet's step takes 15% less
/// on a Zen 5 core.
void prefer_channels_last(torch::nn::Module& model);
/// Returns whether a model should use channels_last. `auto` chooses it on the CPU with LibTorch's
/// ops, and on CUDA where convolutions then run on tensor cores, in mixed precision or TF32. Throws
/// UsageError.
bool wants_channels_last(const StrategyOptions& options, torch::Device device);

/// Selects what CUDA may compute in TF32 (19 bits) instead of f32: nothing (off), convolutions
/// (conv, as in PyTorch), or also matrix products (on). Affects the whole process.
void allow_tf32(const std::string& what);

}  // namespace millrace::train
