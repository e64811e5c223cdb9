// Runs a plain loop at the SIMD level in use: the body is compiled once per level, and the compiler
// vectorises it. Bytes are equal at every level (determinism contract), because a body uses only
// whole numbers, + - * / sqrt and fused() of floats in a fixed order, and reductions of whole
// numbers.
#pragma once

#include <cstdint>

#include "base/simd.h"

/// Write it behind the parameters of a body. A body captures nothing and takes all that it touches
/// as arguments, with pointers marked __restrict: otherwise a stored byte may alias anything, which
/// keeps the compiler from vectorising.
///   dispatch_simd([](std::uint8_t* __restrict levels, int n) MILLRACE_SIMD_BODY { loops }, levels,
///   n);
#define MILLRACE_SIMD_BODY __attribute__((always_inline))

namespace millrace::augment {

#if defined(__x86_64__)
namespace detail {
// A body is a closure of one file, so no other file can be linked to these instances.
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
}  // namespace detail
#endif

template <class Body, class... Args>
void dispatch_simd(Body body, Args... args) {
#if defined(__x86_64__)
  const base::Simd level = base::simd_level();
  if (level == base::Simd::avx512) return detail::run_avx512(body, args...);
  if (level == base::Simd::avx2) return detail::run_avx2(body, args...);
#endif
  body(args...);
}

/// Returns a * b + c rounded once, which is the same everywhere by definition. Torch's blends round
/// like this on machines with such an instruction. Without one this calls the C library, which is
/// slow.
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

}  // namespace millrace::augment
