// Inner loop of max pooling: one line of outputs.
#pragma once

#include <cstdint>

#include "base/simd.h"
#include "models/native/geometry.h"
#include "models/native/parallel.h"

namespace millrace::train::native {

/// One position of the windows: output i of the line reads in[i * step], if begin <= i < end.
template <class T>
struct PoolTap {
  const T* in;
  std::int64_t begin, end;
  std::int32_t index;  ///< index that output 0 records for it
};

template <class T>
struct PoolLine {
  const PoolTap<T>* taps;
  std::int64_t tap_count;
  std::int64_t step;
  std::int32_t index_step;  ///< difference between the indices of adjacent outputs
  std::int64_t count;       ///< number of outputs
  T* best;
  std::int32_t* winners;
};

template <class T>
using PoolLineKernel = void (*)(const PoolLine<T>& line);

/// Returns the kernel of one level, which the processor must support. T: float, double.
template <class T>
PoolLineKernel<T> pool_line_kernel(base::Simd level);

// Max pooling on the CPU, forward and backward. Independent of LibTorch.
//
// Computes a line of outputs at a time, tap by tap: a row of a plane or, if channels or samples are
// adjacent, all of them at one pixel. Of equal values the first position of the window (in
// row-major order) wins; NaN wins over numbers, and of several NaNs the last, as in PyTorch. One
// task sums each plane's gradient in the order of the outputs, so nothing depends on threads.

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
