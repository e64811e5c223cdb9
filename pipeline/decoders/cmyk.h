// Printers' inks to colours, as other loaders do it.
#pragma once

#include <cstdint>
#include <span>

namespace millrace {

/// Four inks a pixel to `channels` levels (3: RGB, 1: gray). With `inverted` (Adobe's files) 255 is
/// no ink, else 0 is. RGB: K' - round(ink * K' / 255), K' = 255 - K; gray: BT.601 luma of that,
/// with 16-bit weights. Both are Pillow's convert("RGB") and convert("L").
inline void convert_cmyk(std::span<const std::uint8_t> inks, bool inverted, std::uint32_t channels,
                         std::uint8_t* out) {
  const std::uint32_t flip = inverted ? 255 : 0;
  for (std::size_t i = 0; i + 4 <= inks.size(); i += 4) {
    const std::uint32_t light = 255 - (inks[i + 3] ^ flip);
    std::uint32_t rgb[3];
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint32_t product = (inks[i + c] ^ flip) * light + 128;
      rgb[c] = light - ((product + (product >> 8)) >> 8);
    }
    if (channels == 3)
      for (const std::uint32_t level : rgb) *out++ = static_cast<std::uint8_t>(level);
    else
      *out++ = static_cast<std::uint8_t>(
          (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
  }
}

}  // namespace millrace
