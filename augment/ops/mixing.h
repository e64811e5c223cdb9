// Parts of mixup and cutmix: draws of the mixing ratio, loops over elements of a batch, and mixed
// labels.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "augment/plan/dispatch_simd.h"
#include "millrace/millrace.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

// Draws from non-uniform distributions, computed with + - * / sqrt alone (determinism contract).

/// Draws from Normal(0, 1) (Box and Muller, "A Note on the Generation of Random Normal Deviates",
/// 1958).
inline double normal_deviate(Draw& draw) {
  const double radius = std::sqrt(-2 * natural_log(1 - draw.uniform()));
  return radius * sincos_degrees(360 * draw.uniform()).cos;
}

/// Draws the natural logarithm of a Gamma(shape, 1) deviate (Marsaglia and Tsang, "A Simple Method
/// for Generating Gamma Variables", 2000). Deviates of small shapes underflow; their logarithms do
/// not.
inline double log_gamma_deviate(double shape, Draw& draw) {
  double log_boost = 0;
  if (shape < 1) {
    log_boost = natural_log(1 - draw.uniform()) / shape;
    shape += 1;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal_deviate(draw);
    const double root = 1 + c * x;
    const double u = 1 - draw.uniform();
    if (root <= 0) continue;
    const double v = root * root * root;
    if (natural_log(u) < 0.5 * x * x + d - d * v + d * natural_log(v))
      return log_boost + natural_log(d * v);
  }
}

/// Draws from Beta(a, b), with a and b positive, as X / (X + Y) of Gamma deviates X and Y.
inline double beta_deviate(double a, double b, Draw& draw) {
  const double log_x = log_gamma_deviate(a, draw);
  const double log_y = log_gamma_deviate(b, draw);
  const double odds = log_y - log_x;
  if (odds > 700) return 0;
  return odds < -700 ? 1.0 : 1 / (1 + exponential(odds));
}

// Elements of a stored batch (8-bit levels, f32, f16 and bf16), converted to and from single
// precision in loops that vectorise.

/// IEEE half precision, as its bits.
struct F16 {
  std::uint16_t bits;
};
/// The upper half of single precision, as its bits.
struct BF16 {
  std::uint16_t bits;
};

MILLRACE_SIMD_BODY inline float to_float(float value) { return value; }
MILLRACE_SIMD_BODY inline float to_float(std::uint8_t value) { return value; }
MILLRACE_SIMD_BODY inline float to_float(BF16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
MILLRACE_SIMD_BODY inline float to_float(F16 value) {
  // Shifts exponent and mantissa into place; a factor of 2^112 corrects the bias, also of subnormal
  // numbers. Ignores infinities: a batch has none.
  const std::uint32_t magnitude = static_cast<std::uint32_t>(value.bits & 0x7FFF) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16;
  return std::bit_cast<float>(
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f) | sign);
}

/// Rounds to nearest, halves to even, in all four specialisations.
template <class Element>
MILLRACE_SIMD_BODY inline Element from_float(float value);
template <>
MILLRACE_SIMD_BODY inline float from_float<float>(float value) {
  return value;
}
template <>
MILLRACE_SIMD_BODY inline std::uint8_t from_float<std::uint8_t>(float value) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23 shifts the fraction out of the mantissa
  return static_cast<std::uint8_t>(static_cast<int>((value + kRound) - kRound));
}
template <>
MILLRACE_SIMD_BODY inline BF16 from_float<BF16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}
template <>
MILLRACE_SIMD_BODY inline F16 from_float<F16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  // Normal numbers: round off 13 bits of the mantissa, and change the bias from 127 to 15.
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  // Below 2^-14, adding 0.5 leaves multiples of 2^-24 in the lowest bits of the mantissa.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  const std::uint32_t half = magnitude < (113u << 23) ? small : normal;
  return {static_cast<std::uint16_t>((half < 0x7C00 ? half : 0x7C00u) | sign)};
}

/// Calls body(Element{}) with the element type of a dtype (MILLRACE_F32 and so on).
template <class Body>
void with_element(std::int32_t dtype, const Body& body) {
  switch (dtype) {
    case MILLRACE_F32:
      return body(float{});
    case MILLRACE_U8:
      return body(std::uint8_t{});
    case MILLRACE_F16:
      return body(F16{});
    default:
      return body(BF16{});
  }
}

// Labels of ops that mix pairs of a batch.

/// Mixes two neighbours' labels: `part` of the own, the rest of the other's.
inline void mix_labels(const Pair& pair, double part) {
  const auto own = static_cast<float>(part), other = static_cast<float>(1 - part);
  for (std::int32_t i = 0; i < pair.sample.classes; ++i) {
    const float a = pair.first_labels[i], b = pair.second_labels[i];
    pair.first_labels[i] = b * other + a * own;
    pair.second_labels[i] = a * other + b * own;
  }
}

}  // namespace millrace::augment
