// Plain loops at the machine's best instructions: a body is compiled once a SIMD level, and the
// compiler vectorises it. Bytes are the same at every level, because a body holds whole numbers,
// or + - * / sqrt and fused() of floats in a fixed order, and reductions of whole numbers only.
#pragma once

#include <cstdint>

#include "base/simd.h"

/// Behind the parameters of a body. It captures nothing and takes all that it touches as arguments,
/// pointers marked __restrict: a byte stored may otherwise be part of anything, which would keep
/// the compiler from vectorising.
///   wide([](std::uint8_t* __restrict levels, int n) MILLRACE_WIDE { loops }, levels, n);
#define MILLRACE_WIDE __attribute__((always_inline))

namespace millrace::augment {
namespace detail {

#if defined(__x86_64__)
// A body is a closure of one file, so no other file can be given these instances of it.
template <class Body, class... Args>
__attribute__((target("avx2,fma,f16c"))) void run_avx2(Body body, Args... args) {
  body(args...);
}
template <class Body, class... Args>
__attribute__((
    target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,fma,f16c,"
           "prefer-vector-width=512"))) void
run_avx512(Body body, Args... args) {
  body(args...);
}
#endif

/// What every processor with AVX2 but a few has besides.
inline bool has_fma() {
#if defined(__x86_64__)
  static const bool both = __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return both;
#else
  return false;
#endif
}

}  // namespace detail

template <class Body, class... Args>
void wide(Body body, Args... args) {
#if defined(__x86_64__)
  const base::Simd level = detail::has_fma() ? base::simd_level() : base::Simd::scalar;
  if (level == base::Simd::avx512) return detail::run_avx512(body, args...);
  if (level == base::Simd::avx2) return detail::run_avx2(body, args...);
#endif
  body(args...);
}

/// a * b + c rounded once, by definition the same everywhere. Torch's blends are rounded like that
/// on machines with such an instruction; without one this calls the C library, which is slow.
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

}  // namespace millrace::augment
