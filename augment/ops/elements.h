// Elements of a stored batch as numbers: 8-bit levels, f32, f16 and bf16, to and from single
// precision; loops over them vectorise.
#pragma once

#include <bit>
#include <cstdint>

#include "augment/plan/wide.h"
#include "millrace/millrace.h"

namespace millrace::augment {

/// Half precision of the IEEE as its bits.
struct F16 {
  std::uint16_t bits;
};
/// The upper half of single precision.
struct BF16 {
  std::uint16_t bits;
};

MILLRACE_WIDE inline float to_float(float value) { return value; }
MILLRACE_WIDE inline float to_float(std::uint8_t value) { return value; }
MILLRACE_WIDE inline float to_float(BF16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
MILLRACE_WIDE inline float to_float(F16 value) {
  // Exponent and mantissa move into place; a factor of 2^112 mends the bias, and subnormal numbers
  // with it. Infinite ones are not looked after: a batch has none.
  const std::uint32_t magnitude = static_cast<std::uint32_t>(value.bits & 0x7FFF) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16;
  return std::bit_cast<float>(
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f) | sign);
}

/// To nearest, halves to even, in all four.
template <class Element>
MILLRACE_WIDE inline Element from_float(float value);
template <>
MILLRACE_WIDE inline float from_float<float>(float value) {
  return value;
}
template <>
MILLRACE_WIDE inline std::uint8_t from_float<std::uint8_t>(float value) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23 pushes the fraction out of the mantissa
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
  // Normal numbers: 13 bits of the mantissa are rounded off, and the bias goes from 127 to 15.
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  // Below 2^-14, adding 0.5 leaves multiples of 2^-24 in the lowest bits of the mantissa.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  const std::uint32_t half = magnitude < (113u << 23) ? small : normal;
  return {static_cast<std::uint16_t>((half < 0x7C00 ? half : 0x7C00u) | sign)};
}

/// body(Element{}) for the element of a dtype, MILLRACE_F32 and so on.
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
