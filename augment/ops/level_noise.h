// Normally distributed whole levels, one per 32-bit word. Uses Walker's alias method ("An Efficient
// Method for Generating Discrete Random Variables with General Distributions", 1977) over the 512
// levels from -256 to 255. The table is made once, so a deviate costs one look-up and one
// comparison. The distribution is that of a rounded normal deviate to 2^-32.
#pragma once

#include <array>
#include <cstdint>

#include "augment/plan/wide.h"

namespace millrace::augment {

class LevelNoise {
 public:
  enum class Rounding { toward_zero, nearest };
  enum class Range { clip, wrap };

  /// Prepares Normal(mean, sigma), both in levels. Range::clip collects levels outside [-255, 255]
  /// at its ends; Range::wrap takes levels modulo 256.
  LevelNoise(double mean, double sigma, Rounding rounding, Range range);

  /// For use in loops, with entries().
  MILLRACE_WIDE static int level(const std::uint32_t* entries, std::uint32_t bits) {
    const std::uint32_t column = bits >> 23;
    const std::uint32_t entry = entries[column];
    const std::uint32_t other = entry & 511;
    return static_cast<int>((bits & 0x7FFFFF) < entry >> 9 ? column : other) - kZero;
  }
  const std::uint32_t* entries() const { return entries_.data(); }

 private:
  static constexpr int kZero = 256;
  /// 23 bits: the part of the column that means its own level. 9 bits: the level that the rest
  /// means.
  std::array<std::uint32_t, 512> entries_;
};

}  // namespace millrace::augment
