// Which instructions kernels use. For pixels all levels give the same bytes (determinism contract);
// the native ops' sums differ between levels in their last bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::base {

enum class Simd : std::uint8_t {
  scalar,  ///< what the compiler may use everywhere
  avx2,    ///< AVX2 and FMA (Haswell, Zen and later)
  avx512,  ///< AVX-512 F, BW, DQ, VL and VBMI (Ice Lake, Zen 4); less is taken as avx2
};

std::string_view name_of(Simd level);

/// The most that this processor and operating system can do.
Simd simd_supported();

/// What the kernels use: simd_supported(), or what the environment variable MILLRACE_SIMD names
/// (scalar, avx2 or avx512). Throws UsageError where the variable names no level or one that this
/// processor can't do.
Simd simd_level();

/// For tests and benchmarks: what the kernels use from now on. Throws UsageError where the
/// processor can't.
void set_simd_level(Simd level);

}  // namespace millrace::base
