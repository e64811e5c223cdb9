// Max pooling on the CPU, forward and backward. Independent of LibTorch.
//
// Computes a line of outputs at a time, tap by tap: a row of a plane or, if channels or samples are
// adjacent, all of them at one pixel. Of equal values the first position of the window (in
// row-major order) wins; NaN wins over numbers, and of several NaNs the last, as in PyTorch. One
// task sums each plane's gradient in the order of the outputs, so nothing depends on threads.
#pragma once

#include "models/native/geometry.h"
#include "models/native/parallel.h"

namespace millrace::train::native {

/// T: float or double. Writes `winners`: row * width + column in the input, for every output.
template <class T>
void max_pool_forward(const PoolGeometry& geometry, const View<const T>& input,
                      const View<T>& output, const View<std::int32_t>& winners,
                      const Parallel& parallel);

/// Overwrites all of `input`, the gradient of the input.
template <class T>
void max_pool_backward(const PoolGeometry& geometry, const View<const T>& gradient,
                       const View<const std::int32_t>& winners, const View<T>& input,
                       const Parallel& parallel);

}  // namespace millrace::train::native
