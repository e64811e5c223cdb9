// Luma of BT.601 in the two roundings that OpenCV uses, so that gray images keep their levels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imgcodecs {

/// Converts rows of red, green, blue (and `step` - 3 bytes that are skipped) to gray with weights
/// of `bits` bits that add up to 1.
template <int bits>
void to_gray(const std::uint8_t* from, std::size_t step, std::size_t count, std::uint8_t* out) {
  constexpr std::uint32_t kOne = 1u << bits;
  constexpr auto kRed = static_cast<std::uint32_t>(0.299 * kOne + 0.5);
  constexpr auto kGreen = static_cast<std::uint32_t>(0.587 * kOne + 0.5);
  constexpr std::uint32_t kBlue = kOne - kRed - kGreen;
  for (std::size_t i = 0; i < count; ++i, from += step)
    out[i] = static_cast<std::uint8_t>(
        (from[0] * kRed + from[1] * kGreen + from[2] * kBlue + kOne / 2) >> bits);
}

}  // namespace imgcodecs
