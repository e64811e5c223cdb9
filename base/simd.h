// The SIMD level that kernels use. Pixel kernels give the same bytes at every level (determinism
// contract); the sums of the native ops differ between levels in their last bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/private_api.h"

namespace millrace::base {

enum class Simd : std::uint8_t {
  scalar,  ///< what the compiler may use on every processor
  avx2,    ///< AVX2 and FMA (Haswell, Zen and later)
  /// AVX-512 F, BW, DQ, VL, VBMI and VNNI (Ice Lake, Zen 4); with any missing, avx2 is used.
  avx512,
};

MILLRACE_PRIVATE_API std::string_view name_of(Simd level);

/// Returns the highest level that this processor and operating system support.
Simd simd_supported();

/// Returns the level in use: simd_supported(), or the level that the environment variable
/// MILLRACE_SIMD names (scalar, avx2 or avx512). Throws UsageError if the variable names no level
/// or one that is not supported.
MILLRACE_PRIVATE_API Simd simd_level();

/// Sets the level in use, for tests and benchmarks. Throws UsageError if it is not supported.
void set_simd_level(Simd level);

}  // namespace millrace::base
