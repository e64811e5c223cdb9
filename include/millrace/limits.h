// Limits on the size of one image, whatever its file claims.
#pragma once

#include <cstdint>

namespace millrace {

/// Longest side of an image, in pixels: positions are fixed point with at least 12 bits of fraction
/// in 31 bits.
inline constexpr int kMaxImageSide = 65535;

/// `data.max_pixels` where nobody says: 64 Mi pixels, 192 MiB of colour, which a full-frame
/// camera's 61 million fit into.
inline constexpr std::uint64_t kMaxPixels = std::uint64_t{1} << 26;

/// `loader.max_bytes` where nobody says: 64 workers on photographs of 12 million pixels.
inline constexpr std::uint64_t kMaxBytes = std::uint64_t{8} << 30;

/// Bytes that an image may take while it is decoded and augmented: its pixels, `copies` more of
/// them, and what a codec takes besides, at most: 7 bytes per pixel, for a lossless WebP its ARGB
/// and OpenCV's image. A progressive JPEG's coefficients take up to 6.
constexpr std::uint64_t working_bytes(std::uint64_t pixels, int channels, int copies = 0) {
  constexpr std::uint64_t kCodec = 7;
  return pixels *
         (static_cast<std::uint64_t>(channels) * static_cast<std::uint64_t>(1 + copies) + kCodec);
}

}  // namespace millrace
