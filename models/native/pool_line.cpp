// Compiles one source for three instruction sets; the compiler vectorises it.
#include "models/native/pool_line.h"

#include <algorithm>
#include <limits>

namespace millrace::train::native {
namespace {

/// kStep and kIndexStep are the line's steps if known at compile time; 0: any.
template <class T, int kStep>
__attribute__((always_inline)) inline void take_tap(const PoolLine<T>& line,
                                                    const PoolTap<T>& tap) {
  const std::int64_t step = kStep == 0 ? line.step : kStep;
  const T* const in = tap.in;
  T* const best = line.best;
  std::int32_t* const winners = line.winners;
  const std::int32_t first = tap.index;
  const std::int32_t index_step = line.index_step;
  const std::int64_t end = tap.end;
#pragma GCC ivdep
  for (std::int64_t i = tap.begin; i < end; ++i) {
    const T value = in[i * step];
    const bool wins = (value > best[i]) | (value != value) | (winners[i] < 0);
    best[i] = wins ? value : best[i];
    winners[i] = wins ? first + static_cast<std::int32_t>(i) * index_step : winners[i];
  }
}

template <class T>
__attribute__((always_inline)) inline void pool_line(const PoolLine<T>& line) {
  std::fill_n(line.best, line.count, -std::numeric_limits<T>::infinity());
  std::fill_n(line.winners, line.count, -1);
  for (std::int64_t k = 0; k < line.tap_count; ++k) {
    if (line.step == 1)
      take_tap<T, 1>(line, line.taps[k]);
    else if (line.step == 2)
      take_tap<T, 2>(line, line.taps[k]);
    else
      take_tap<T, 0>(line, line.taps[k]);
  }
}

template <class T>
void scalar(const PoolLine<T>& line) {
  pool_line(line);
}
#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2,fma"))) void avx2(const PoolLine<T>& line) {
  pool_line(line);
}
template <class T>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void avx512(const PoolLine<T>& line) {
  pool_line(line);
}
#endif

}  // namespace

template <class T>
PoolLineKernel<T> pool_line_kernel(base::Simd level) {
#if defined(__x86_64__)
  if (level == base::Simd::avx512) return avx512<T>;
  if (level == base::Simd::avx2) return avx2<T>;
#endif
  static_cast<void>(level);
  return scalar<T>;
}

template PoolLineKernel<float> pool_line_kernel(base::Simd);
template PoolLineKernel<double> pool_line_kernel(base::Simd);

}  // namespace millrace::train::native
