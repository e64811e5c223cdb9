// Tensors as the kernels see them, for the CPU's and the CUDA module's side of the ops.
#pragma once

#include <ATen/ATen.h>

#include "models/native/geometry.h"

namespace millrace::train::native {

/// The geometry of the op's arguments. Throws UsageError for what the native ops don't take: other
/// than 4 dimensions, other types than f32 and f64 (the same for all), numbers that don't fit
/// together, and what complete() refuses. `bias` may be undefined.
ConvGeometry conv_geometry(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                           at::IntArrayRef dilation, std::int64_t groups);
PoolGeometry pool_geometry(const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride,
                           at::IntArrayRef padding, at::IntArrayRef dilation);

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
