// Converts CMYK to RGB or gray with the same result as other loaders.
#pragma once

#include <cstdint>
#include <span>

namespace millrace::pipeline {

/// Converts four inks per pixel, as libjpeg delivers CMYK and YCCK, to `channels` levels per pixel.
/// 255 means no ink: Adobe stores inks inverted, and Pillow, OpenCV and torchvision read every file
/// that way, with or without Adobe's marker. RGB (3): K - round((255 - ink) K / 255). Gray (1):
/// BT.601 luma of that with 16-bit weights. Both equal Pillow's convert("RGB") and convert("L") to
/// the last bit.
inline void convert_cmyk(std::span<const std::uint8_t> inks, std::uint32_t channels,
                         std::uint8_t* out) {
  for (std::size_t i = 0; i + 4 <= inks.size(); i += 4) {
    const std::uint32_t light = inks[i + 3];
    std::uint32_t rgb[3];
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint32_t product = (255u - inks[i + c]) * light + 128;
      rgb[c] = light - ((product + (product >> 8)) >> 8);
    }
    if (channels == 3)
      for (const std::uint32_t level : rgb) *out++ = static_cast<std::uint8_t>(level);
    else
      *out++ = static_cast<std::uint8_t>(
          (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
  }
}

}  // namespace millrace::pipeline
