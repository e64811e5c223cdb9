// train.device as torch has it.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>

#include "strategies/torch/cuda_library.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// "cpu", "cuda" or "cuda:N" as the index of a CUDA device; -1 for the CPU. Throws UsageError.
int device_index(const std::string& device);
/// The module for the options' device, or for all of its replicas' devices, loaded; empty for the
/// CPU. Throws DeviceError.
std::optional<CudaLibrary> load_cuda(const StrategyOptions& options);
torch::Device torch_device(const std::string& device);

/// Every step allocates the tensors that the step before has freed. Where the allocator hands them
/// back to the kernel in between, LeNet's step takes some 900 page faults; kept, they cost a few
/// megabytes. For the whole process.
void keep_freed_memory();

/// oneDNN and the pooling kernels are faster on pixels than on planes (LeNet's step takes 15% less
/// on a Zen 5 core); the parameters' memory format decides for the whole network.
void prefer_channels_last(torch::nn::Module& model);
/// Whether a model is to have it. By itself: on the CPU with LibTorch's ops; on CUDA where its
/// convolutions then run on tensor cores, in mixed precision or TF32. Throws UsageError.
bool wants_channels_last(const StrategyOptions& options, torch::Device device);

/// What CUDA may compute in TF32 (19 bits) instead of f32: nothing (off), convolutions (conv, as
/// PyTorch does), matrix products too (on). For the whole process.
void allow_tf32(const std::string& what);

}  // namespace millrace::train
