// Random bits in bulk: a stream for one call, keyed by two of the call's draws. It makes Philox
// blocks side by side, which vectorises; the call's own generator makes one at a time.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "augment/plan/dispatch_simd.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

class BulkBits {
 public:
  explicit BulkBits(Draw& draw) : key0_(draw.bits()), key1_(draw.bits()) {}

  /// Returns the next words, at least one and at most `most`; stores their number in `count`.
  const std::uint32_t* take(std::size_t most, std::size_t& count) {
    if (used_ == kWords) refill();
    count = most < kWords - used_ ? most : kWords - used_;
    const std::uint32_t* words = words_ + used_;
    used_ += count;
    return words;
  }

  /// Number of blocks made side by side. Their first words come first, then their second ones.
  static constexpr std::size_t kLanes = 64;

 private:
  static constexpr std::size_t kWords = 4 * kLanes;

  void refill() {
    dispatch_simd(
        [](std::uint32_t* __restrict to, std::uint32_t first, std::uint32_t key_0,
           std::uint32_t key_1) MILLRACE_SIMD_BODY {
          std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
          for (std::uint32_t i = 0; i < kLanes; ++i) {
            c0[i] = c1[i] = c2[i] = 0;
            c3[i] = first + i;
          }
          for (int round = 0; round < 10; ++round) {  // as in millrace_rng_bits()
            for (std::uint32_t i = 0; i < kLanes; ++i) {
              const std::uint64_t a = std::uint64_t{0xD2511F53} * c0[i];
              const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c2[i];
              c0[i] = static_cast<std::uint32_t>(b >> 32) ^ c1[i] ^ key_0;
              c1[i] = static_cast<std::uint32_t>(b);
              c2[i] = static_cast<std::uint32_t>(a >> 32) ^ c3[i] ^ key_1;
              c3[i] = static_cast<std::uint32_t>(a);
            }
            key_0 += 0x9E3779B9;
            key_1 += 0xBB67AE85;
          }
          for (std::uint32_t i = 0; i < kLanes; ++i) {
            to[i] = c0[i];
            to[kLanes + i] = c1[i];
            to[2 * kLanes + i] = c2[i];
            to[3 * kLanes + i] = c3[i];
          }
        },
        words_, next_, key0_, key1_);
    next_ += kLanes;
    used_ = 0;
  }

  alignas(64) std::uint32_t words_[kWords];
  std::size_t used_ = kWords;
  std::uint32_t key0_, key1_;
  std::uint32_t next_ = 0;
};

/// Normally distributed whole levels, one per 32-bit word. Uses Walker's alias method ("An
/// Efficient Method for Generating Discrete Random Variables with General Distributions", 1977)
/// over the 512 levels from -256 to 255. The table is made once, so a deviate costs one look-up and
/// one comparison. The distribution is that of a rounded normal deviate to 2^-32.
class LevelNoise {
 public:
  enum class Rounding { toward_zero, nearest };
  enum class Range { clip, wrap };

  /// Prepares Normal(mean, sigma), both in levels. Range::clip collects levels outside [-255, 255]
  /// at its ends; Range::wrap takes levels modulo 256.
  LevelNoise(double mean, double sigma, Rounding rounding, Range range);

  /// For use in loops, with entries().
  MILLRACE_SIMD_BODY static int level(const std::uint32_t* entries, std::uint32_t bits) {
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

/// Standard normal deviates (Marsaglia and Bray, "A Convenient Method for Generating Normal
/// Variables", 1964: the polar method), for noise on floats.
class NormalDraws {
 public:
  explicit NormalDraws(Draw& draw) : draw_(draw) {}

  double next() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    double x = 0, y = 0, square = 0;
    do {
      x = draw_.uniform(-1, 1);
      y = draw_.uniform(-1, 1);
      square = x * x + y * y;
    } while (square >= 1 || square == 0);
    const double factor = std::sqrt(-2 * natural_log(square) / square);
    spare_ = y * factor;
    has_spare_ = true;
    return x * factor;
  }

 private:
  Draw& draw_;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace millrace::augment
