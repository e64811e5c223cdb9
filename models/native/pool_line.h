// The inner loop of max pooling: one line of outputs.
#pragma once

#include <cstdint>

#include "base/simd.h"

namespace millrace::train::native {

/// One position of the windows: output i of the line sees in[i * step], if begin <= i < end.
template <class T>
struct PoolTap {
  const T* in;
  std::int64_t begin, end;
  std::int32_t index;  ///< that output 0 gives for it
};

template <class T>
struct PoolLine {
  const PoolTap<T>* taps;
  std::int64_t tap_count;
  std::int64_t step;
  std::int32_t index_step;  ///< from one output's index to the next one's
  std::int64_t count;       ///< of outputs
  T* best;
  std::int32_t* winners;
};

template <class T>
using PoolLineKernel = void (*)(const PoolLine<T>& line);

/// That of one level, which the processor must be able to do. T: float, double.
template <class T>
PoolLineKernel<T> pool_line_kernel(base::Simd level);

}  // namespace millrace::train::native
