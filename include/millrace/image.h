// Non-owning views of 8-bit images: the type that decoders produce and augmentations read.
// A view is valid as long as the memory that it points into.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.hpp"

namespace millrace {

/// A read-only view of 8-bit pixels with any strides (negative ones mirror), interleaved or planar.
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

/// Returns a view of height x width x channels bytes without padding (the layout that decoders
/// write).
inline ImageView interleaved(const std::uint8_t* data, Size size, int channels) {
  return {data,
          size.width,
          size.height,
          channels,
          static_cast<std::ptrdiff_t>(size.width) * channels,
          channels,
          1};
}

/// Returns a view of channels x height x width bytes without padding (the layout of CIFAR's binary
/// files).
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
