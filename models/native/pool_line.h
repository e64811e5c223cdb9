// Inner loop of max pooling: one line of outputs.
#pragma once

#include <cstdint>

#include "base/simd.h"

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

}  // namespace millrace::train::native
