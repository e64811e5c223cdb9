// Elements of a stored batch (8-bit levels, f32, f16 and bf16), converted to and from single
// precision in loops that vectorise.
#pragma once

#include <bit>
#include <cstdint>

#include "augment/plan/wide.h"
#include "millrace/millrace.h"

namespace millrace::augment {

/// IEEE half precision, as its bits.
struct F16 {
  std::uint16_t bits;
};
/// The upper half of single precision, as its bits.
struct BF16 {
  std::uint16_t bits;
};

MILLRACE_WIDE inline float to_float(float value) { return value; }
MILLRACE_WIDE inline float to_float(std::uint8_t value) { return value; }
MILLRACE_WIDE inline float to_float(BF16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
MILLRACE_WIDE inline float to_float(F16 value) {
  // Shifts exponent and mantissa into place; a factor of 2^112 corrects the bias, also of subnormal
  // numbers. Ignores infinities: a batch has none.
  const std::uint32_t magnitude = static_cast<std::uint32_t>(value.bits & 0x7FFF) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16;
  return std::bit_cast<float>(
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f) | sign);
}

/// Rounds to nearest, halves to even, in all four specialisations.
template <class Element>
MILLRACE_WIDE inline Element from_float(float value);
template <>
MILLRACE_WIDE inline float from_float<float>(float value) {
  return value;
}
template <>
MILLRACE_WIDE inline std::uint8_t from_float<std::uint8_t>(float value) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23 shifts the fraction out of the mantissa
  return static_cast<std::uint8_t>(static_cast<int>((value + kRound) - kRound));
}
template <>
MILLRACE_WIDE inline BF16 from_float<BF16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}
template <>
MILLRACE_WIDE inline F16 from_float<F16>(float value) {
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

}  // namespace millrace::augment
