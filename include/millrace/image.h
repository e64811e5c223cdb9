// Views of 8-bit images: the one type that decoders produce and augmentations read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.hpp"

namespace millrace {

/// A read-only window on 8-bit pixels, any stride (negative ones mirror), interleaved or planar.
/// Sample (x, y, c) is data[y * row + x * pixel + c * channel].
struct ImageView {
  const std::uint8_t* data = nullptr;
  int width = 0;
  int height = 0;
  int channels = 0;
  std::ptrdiff_t row = 0;      ///< bytes from one row to the next
  std::ptrdiff_t pixel = 0;    ///< bytes from one pixel to the next in a row
  std::ptrdiff_t channel = 0;  ///< bytes from one channel to the next of a pixel

  Size size() const { return {width, height}; }
  const std::uint8_t* at(int x, int y, int c = 0) const {
    return data + y * row + x * pixel + c * channel;
  }
};

/// Height x width x channels, one pixel after the other (what decoders write).
inline ImageView interleaved(const std::uint8_t* data, Size size, int channels) {
  return {data,
          size.width,
          size.height,
          channels,
          static_cast<std::ptrdiff_t>(size.width) * channels,
          channels,
          1};
}

/// Channels x height x width, one plane after the other (CIFAR's binary files).
inline ImageView planar(const std::uint8_t* data, Size size, int channels) {
  return {data,
          size.width,
          size.height,
          channels,
          size.width,
          1,
          static_cast<std::ptrdiff_t>(size.width) * size.height};
}

}  // namespace millrace
