// Max pooling on the CPU, forward and backward. Free of LibTorch.
//
// A line of outputs is computed at a time, tap by tap: a row of a plane, or, where channels or
// samples lie side by side, all of them at one pixel. Of equals the first position of the window
// (in row-major order) wins, NaN wins over numbers and the last NaN over others, as in PyTorch.
// Every plane's gradient is summed by one task in the order of the outputs, so nothing depends on
// threads.
#pragma once

#include "models/native/geometry.h"
#include "models/native/parallel.h"

namespace millrace::train::native {

/// T: float or double. `winners`: for every output, row * width + column of the input.
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
