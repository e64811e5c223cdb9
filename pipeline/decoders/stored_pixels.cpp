#include "pipeline/decoders/stored_pixels.h"

#include <fmt/core.h>

#include <cstring>

namespace millrace::pipeline {
namespace {

/// BT.601 luma with 16-bit weights, as Pillow's convert("L").
std::uint8_t luma(const std::uint8_t* rgb, std::ptrdiff_t channel) {
  return static_cast<std::uint8_t>(
      (rgb[0] * 19595u + rgb[channel] * 38470u + rgb[2 * channel] * 7471u + 0x8000u) >> 16);
}

void check_request(const ImageView& image, const millrace_decode& request) {
  const bool asks_for_bytes = request.depth <= MILLRACE_DEPTH_8;
  if (asks_for_bytes && image.depth != Depth::u8)
    throw DataError(fmt::format("{}, and 8 bits are asked for",
                                image.depth == Depth::u16 ? "16 bits per value" : "floats"),
                    fmt::format("set decode.depth={}", image.depth == Depth::u16 ? "16" : "float"));
  const bool is_gray_or_rgb = image.channels == 1 || image.channels == 3;
  if (static_cast<int>(request.channels) != image.channels && !(asks_for_bytes && is_gray_or_rgb))
    throw DataError(
        fmt::format("{} channels, and {} are asked for", image.channels, request.channels),
        "set decode.depth=16 or decode.depth=float, which keep all channels");
}

}  // namespace

millrace_image_header header_of(const ImageView& image) {
  const auto channels = static_cast<std::uint32_t>(image.channels);
  return {static_cast<std::uint32_t>(image.width),
          static_cast<std::uint32_t>(image.height),
          channels == 1 ? 1u : 3u,
          1,
          1,
          static_cast<std::uint32_t>(image.depth),
          channels};
}

void deliver(const ImageView& image, const millrace_decode& request, std::uint8_t* pixels,
             std::size_t row_bytes) {
  check_request(image, request);
  const Rect& region = request.region;
  const auto channels = static_cast<int>(request.channels);
  const bool as_stored = channels == image.channels;
  const auto value = static_cast<std::size_t>(bytes_of(image.depth));
  const std::size_t pixel = static_cast<std::size_t>(channels) * value;
  const bool side_by_side =
      image.channel == bytes_of(image.depth) && image.pixel == image.channels * image.channel;
  for (int y = region.y0; y < region.y1; ++y, pixels += row_bytes) {
    if (as_stored && side_by_side) {
      std::memcpy(pixels, image.at(region.x0, y),
                  static_cast<std::size_t>(region.x1 - region.x0) * pixel);
      continue;
    }
    std::uint8_t* to = pixels;
    for (int x = region.x0; x < region.x1; ++x, to += pixel) {
      const std::uint8_t* from = image.at(x, y);
      if (as_stored)
        for (int c = 0; c < channels; ++c)
          std::memcpy(to + static_cast<std::size_t>(c) * value, from + c * image.channel, value);
      else if (channels == 1)
        *to = luma(from, image.channel);
      else
        std::memset(to, *from, pixel);
    }
  }
}

}  // namespace millrace::pipeline
