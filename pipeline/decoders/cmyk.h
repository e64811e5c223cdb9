// Printers' inks to colours, as other loaders do it.
#pragma once

#include <cstdint>
#include <span>

namespace millrace::pipeline {

/// Four inks a pixel, as libjpeg gives CMYK and YCCK, to `channels` levels. 255 is no ink: Adobe
/// writes them so, and Pillow, OpenCV and torchvision take every file that way, whether it has
/// Adobe's marker or not. RGB (3): K - round((255 - ink) K / 255); gray (1): BT.601 luma of that
/// with 16-bit weights. Both are Pillow's convert("RGB") and convert("L") to the last bit.
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
