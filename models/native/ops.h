// The native ops as functions on tensors, with autograd: our own kernels for the CPU and, once the
// CUDA module is loaded, for CUDA.
//
// They take f32 and f64 in 4 dimensions, any stride, padding, dilation and groups, and any batch
// (0 too); tensors contiguous, channels_last or with samples side by side (strides 1 for the
// batch), others more slowly. Everything else is refused by a UsageError: other types, a batchless
// image, padding by name, more pooling padding than half the kernel, ceil_mode. There are no second
// derivatives. Outputs lie as the input does (contiguous, where it lies in no order of the three),
// on CUDA always contiguous. Results don't depend on the number of threads.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace millrace::train::native {

/// As at::conv2d; `bias` may be undefined. Stride, padding and dilation are (height, width).
at::Tensor conv2d(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                  std::int64_t groups);

/// As at::max_pool2d. Of equals the first position of a window (in row-major order) gets the
/// gradient; NaN wins over numbers, the last NaN over others.
at::Tensor max_pool2d(const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride,
                      at::IntArrayRef padding, at::IntArrayRef dilation);

/// max_pool2d(relu(conv2d(...)), 2) in one, stride 1, CPU only: what lies between is never written
/// to memory, and backward keeps a byte an output instead. Refuses padding beyond
/// dilation * (kernel - 1) and convolutions of less than 2x2 pixels. The output's samples lie side
/// by side.
at::Tensor conv_relu_pool(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                          at::IntArrayRef padding, at::IntArrayRef dilation, std::int64_t groups);

}  // namespace millrace::train::native
