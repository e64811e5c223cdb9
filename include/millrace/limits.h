// Limits on the size of one image and on working memory. They hold whatever an image file claims
// (bounded-memory contract).
#pragma once

#include <cstdint>

namespace millrace {

/// Longest side of an image, in pixels. Positions are fixed point in 31 bits with at least 12 bits
/// of fraction.
inline constexpr int kMaxImageSide = 65535;

/// Largest number of channels of an image with decode.depth: hyperspectral cameras have some 200.
inline constexpr int kMaxChannels = 512;

/// Default of `data.max_pixels`: 64 Mi pixels, which is 192 MiB of colour. A full-frame camera's 61
/// million pixels fit.
inline constexpr std::uint64_t kMaxPixels = std::uint64_t{1} << 26;

/// Default of `loader.max_bytes`: enough for 64 workers on photographs of 12 million pixels.
inline constexpr std::uint64_t kMaxBytes = std::uint64_t{8} << 30;

/// Returns the number of bytes that an image may take while it is decoded and augmented: its
/// pixels, `copies` more of them, and at most 7 bytes per pixel inside a codec. A lossless WebP
/// reaches 7 (its ARGB and OpenCV's image); a progressive JPEG's coefficients take up to 6.
constexpr std::uint64_t working_bytes(std::uint64_t pixels, int channels, int copies = 0) {
  constexpr std::uint64_t kCodec = 7;
  return pixels *
         (static_cast<std::uint64_t>(channels) * static_cast<std::uint64_t>(1 + copies) + kCodec);
}

}  // namespace millrace
