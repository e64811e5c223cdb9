// A writable strip of 8-bit output rows: what sampling kernels fill.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::augment {

/// Rows [top, ...) of the output, in output coordinates; planar, interleaved or one channel.
struct Canvas {
  std::uint8_t* data = nullptr;  ///< pixel (0, top), channel 0
  int top = 0;
  int channels = 0;
  std::ptrdiff_t row = 0;      ///< bytes from one row to the next
  std::ptrdiff_t pixel = 0;    ///< 1, or `channels` where interleaved
  std::ptrdiff_t channel = 0;  ///< bytes from one channel to the next of a pixel

  std::uint8_t* at(int x, int y, int c = 0) const {
    return data + (y - top) * row + x * pixel + c * channel;
  }
  /// Channels of a pixel lie side by side (also where there is one).
  bool interleaved() const { return channels == 1 || channel == 1; }
};

}  // namespace millrace::augment
