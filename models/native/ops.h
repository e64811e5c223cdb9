// Native ops as functions on tensors, with autograd: own kernels for the CPU and, once the CUDA
// module is loaded, for CUDA.
//
// They support f32 and f64 in 4 dimensions, any stride, padding, dilation and groups, and any batch
// (including 0). Tensors may be contiguous, channels_last or have adjacent samples (stride 1 along
// the batch); others are slower. Anything else throws UsageError: other types, images without a
// batch, padding by name, more pooling padding than half the kernel, ceil_mode. There are no second
// derivatives. Outputs have the input's memory order (contiguous, if it has none of the three); on
// CUDA they are always contiguous. Results do not depend on the number of threads.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "base/private_api.h"
#include "models/native/geometry.h"

namespace millrace::train::native {

/// Computes at::conv2d; `bias` may be undefined. Stride, padding and dilation are (height, width).
MILLRACE_PRIVATE_API at::Tensor conv2d(const at::Tensor& input, const at::Tensor& weight,
                                       const at::Tensor& bias, at::IntArrayRef stride,
                                       at::IntArrayRef padding, at::IntArrayRef dilation,
                                       std::int64_t groups);

/// Computes at::max_pool2d. Of equal values, the first position of a window (in row-major order)
/// gets the gradient. NaN wins over numbers, and of several NaNs the last.
MILLRACE_PRIVATE_API at::Tensor max_pool2d(const at::Tensor& input, at::IntArrayRef kernel,
                                           at::IntArrayRef stride, at::IntArrayRef padding,
                                           at::IntArrayRef dilation);

/// Computes max_pool2d(relu(conv2d(...)), 2) in one op, with stride 1, on the CPU only.
/// Intermediate values are never written to memory; backward keeps one byte per output instead.
/// Throws for padding beyond dilation * (kernel - 1) and for convolutions of less than 2x2 pixels.
/// The output's samples are adjacent.
MILLRACE_PRIVATE_API at::Tensor conv_relu_pool(const at::Tensor& input, const at::Tensor& weight,
                                               const at::Tensor& bias, at::IntArrayRef padding,
                                               at::IntArrayRef dilation, std::int64_t groups);

/// Converts N x C x H x W levels (u8, planes or pixels) to elements by a table per channel:
/// `tables` is C x 256, of 2 or 4 bytes, on the same device. Returns images of its type,
/// channels_last or contiguous. Has no gradient.
at::Tensor normalize(const at::Tensor& levels, const at::Tensor& tables, bool channels_last);

/// Adds to `count`, one i64, the number of rows of f32 `logits` (N x classes) whose first largest
/// value is at the row's label (N i64), in one launch on CUDA. Comparisons with NaN are false. A
/// label that is no class is never correct. Throws c10::Error for other tensors.
void count_correct(const at::Tensor& count, const at::Tensor& logits, const at::Tensor& labels);

// Converts tensors to the kernels' views and shapes, for the ops of the CPU and of the CUDA module.

/// Returns the geometry of the op's arguments. Throws UsageError for unsupported ones: other than 4
/// dimensions, types other than f32 and f64 (the same for all), contradictory numbers, and those
/// that complete() rejects. `bias` may be undefined.
MILLRACE_PRIVATE_API ConvGeometry conv_geometry(const at::Tensor& input, const at::Tensor& weight,
                                                const at::Tensor& bias, at::IntArrayRef stride,
                                                at::IntArrayRef padding, at::IntArrayRef dilation,
                                                std::int64_t groups);
MILLRACE_PRIVATE_API PoolGeometry pool_geometry(const at::Tensor& input, at::IntArrayRef kernel,
                                                at::IntArrayRef stride, at::IntArrayRef padding,
                                                at::IntArrayRef dilation);

/// Returns the geometry of normalize()'s arguments. Throws c10::Error for arguments that it does
/// not take.
MILLRACE_PRIVATE_API NormalizeGeometry normalize_geometry(const at::Tensor& levels,
                                                          const at::Tensor& tables,
                                                          bool channels_last);

/// Throws c10::Error for arguments that count_correct() does not take.
MILLRACE_PRIVATE_API void check_counted(const at::Tensor& count, const at::Tensor& logits,
                                        const at::Tensor& labels);

template <class T>
View<const T> view_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), tensor.stride(0), tensor.stride(1), tensor.stride(2),
          tensor.stride(3)};
}
template <class T>
View<T> mutable_view_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<T>(), tensor.stride(0), tensor.stride(1), tensor.stride(2),
          tensor.stride(3)};
}

}  // namespace millrace::train::native
