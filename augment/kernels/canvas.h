// A writable strip of 8-bit output rows, which sampling kernels fill.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::augment {

/// Rows from `top` on, in output coordinates; planar, interleaved or with one channel.
struct Canvas {
  std::uint8_t* data = nullptr;  ///< pixel (0, top), channel 0
  int top = 0;
  int channels = 0;
  std::ptrdiff_t row = 0;      ///< bytes from one row to the next
  std::ptrdiff_t pixel = 0;    ///< 1, or `channels` if interleaved
  std::ptrdiff_t channel = 0;  ///< bytes from one channel to the next of a pixel

  std::uint8_t* at(int x, int y, int c = 0) const {
    return data + (y - top) * row + x * pixel + c * channel;
  }
  /// Returns whether the channels of a pixel lie side by side (also if there is one).
  bool interleaved() const { return channels == 1 || channel == 1; }
};

}  // namespace millrace::augment
