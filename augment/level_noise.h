// Normally distributed whole levels, one a 32-bit word: Walker's alias method ("An Efficient Method
// for Generating Discrete Random Variables with General Distributions", 1977) over the 512 levels
// from -256 to 255. The table is made once, so a deviate costs a look-up and a comparison, and its
// distribution is that of a rounded normal deviate to 2^-32.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

class LevelNoise {
 public:
  enum class Rounding { toward_zero, nearest };
  enum class Range { clip, wrap };

  /// Levels of Normal(mean, sigma), both in levels. Range::clip gathers what lies outside [-255,
  /// 255] at its ends; Range::wrap takes levels modulo 256 instead.
  LevelNoise(double mean, double sigma, Rounding rounding, Range range);

  int operator()(std::uint32_t bits) const {
    const std::uint32_t column = bits >> 23;
    const std::uint32_t part = bits & 0x7FFFFF;
    return static_cast<int>(part < columns_[column] ? column : other_[column]) - kZero;
  }

 private:
  static constexpr int kZero = 256;
  std::array<std::uint32_t, 512> columns_;  ///< share of the column's own level, times 2^23
  std::array<std::uint16_t, 512> other_;    ///< what the rest of the column stands for
};

}  // namespace millrace
