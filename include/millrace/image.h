// Non-owning views of images: the type that decoders produce and augmentations read. A view is
// valid as long as the memory that it points into.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.hpp"

namespace millrace {

/// Type of a pixel's values. Numbers in memory are little-endian and need not be aligned.
enum class Depth : std::uint8_t {
  u8 = MILLRACE_DEPTH_8,       ///< levels 0 to 255
  u16 = MILLRACE_DEPTH_16,     ///< levels 0 to 65,535
  f32 = MILLRACE_DEPTH_FLOAT,  ///< numbers of any range
};
constexpr std::ptrdiff_t bytes_of(Depth depth) { return static_cast<std::ptrdiff_t>(depth) / 8; }

/// A read-only view of pixels with any strides (negative ones mirror), interleaved or planar. Value
/// (x, y, c) starts at data + y * row + x * pixel + c * channel.
struct ImageView {
  const std::uint8_t* data = nullptr;
  int width = 0;
  int height = 0;
  int channels = 0;
  std::ptrdiff_t row = 0;      ///< bytes from one row to the next
  std::ptrdiff_t pixel = 0;    ///< bytes from one pixel to the next in a row
  std::ptrdiff_t channel = 0;  ///< bytes from one channel to the next of a pixel
  Depth depth = Depth::u8;

  Size size() const { return {width, height}; }
  const std::uint8_t* at(int x, int y, int c = 0) const {
    return data + y * row + x * pixel + c * channel;
  }
};

/// Returns a view of height x width x channels values without padding (the layout that decoders
/// write).
inline ImageView interleaved(const std::uint8_t* data, Size size, int channels,
                             Depth depth = Depth::u8) {
  const std::ptrdiff_t value = bytes_of(depth), pixel = channels * value;
  return {data, size.width, size.height, channels, size.width * pixel, pixel, value, depth};
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
