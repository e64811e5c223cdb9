// Converts tensors to the kernels' views and shapes, for the ops of the CPU and of the CUDA module.
#pragma once

#include <ATen/ATen.h>

#include "base/private_api.h"
#include "models/native/geometry.h"

namespace millrace::train::native {

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
