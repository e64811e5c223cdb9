#include "augment/color.h"

#include <algorithm>

#include "augment/pixels.h"

namespace millrace {
namespace {

/// Whole levels, what lies outside 0..255 at its ends.
MILLRACE_WIDE inline std::uint8_t cut_off(float value) {
  value = value > 0 ? value : 0;
  value = value < 255 ? value : 255;
  return static_cast<std::uint8_t>(static_cast<int>(value));
}

/// A whole level, as torch computes and then cuts off: two fused steps.
MILLRACE_WIDE inline int gray_of(float r, float g, float b) {
  return static_cast<int>(fused(b, 0.114f, fused(g, 0.587f, r * 0.2989f)));
}

/// Mean over all pixels of their gray; the sum is exact.
float mean_gray(const Image& image) {
  std::uint64_t sum = 0;
  if (image.channels == 1) {
    each_row(image, [&](const std::uint8_t* row, std::size_t bytes) {
      for (std::size_t done = 0; done < bytes; done += 65536) {  // so that 32 bits are enough
        std::uint32_t part = 0;
        wide(
            [](const std::uint8_t* __restrict in, std::size_t n, std::uint32_t* __restrict out)
                MILLRACE_WIDE {
                  std::uint32_t total = 0;
                  for (std::size_t i = 0; i < n; ++i) total += in[i];
                  *out = total;
                },
            row + done, std::min<std::size_t>(65536, bytes - done), &part);
        sum += part;
      }
    });
  } else {
    each_rgb_run<false>(image, [&](const RgbRun& run, std::size_t count) {
      std::int32_t part = 0;
      wide(
          [](const std::uint8_t* __restrict r, const std::uint8_t* __restrict g,
             const std::uint8_t* __restrict b, std::size_t n, std::int32_t* __restrict out)
              MILLRACE_WIDE {
                std::int32_t total = 0;
                for (std::size_t i = 0; i < n; ++i) total += gray_of(r[i], g[i], b[i]);
                *out = total;
              },
          run.r, run.g, run.b, count, &part);
      sum += static_cast<std::uint32_t>(part);
    });
  }
  const auto pixels = static_cast<float>(image.width) * static_cast<float>(image.height);
  return static_cast<float>(sum) / pixels;
}

/// 1 - factor is taken in double precision, as Python does.
float rest_of(double factor) { return static_cast<float>(1.0 - factor); }

}  // namespace

void brightness_table(float factor, LevelTable& table) {
  for (std::size_t level = 0; level < 256; ++level)
    table[level] = cut_off(static_cast<float>(level) * factor);
}

void adjust_brightness(const Image& image, double factor) {
  LevelTable tables[3];
  for (int c = 0; c < image.channels; ++c) brightness_table(static_cast<float>(factor), tables[c]);
  apply_levels(image, tables);
}

void adjust_contrast(const Image& image, double factor) {
  const float mean = mean_gray(image);
  LevelTable tables[3];
  for (std::size_t level = 0; level < 256; ++level)
    tables[0][level] = cut_off(
        fused(mean, rest_of(factor), static_cast<float>(level) * static_cast<float>(factor)));
  tables[1] = tables[2] = tables[0];
  apply_levels(image, tables);
}

void adjust_saturation(const Image& image, double factor) {
  if (image.channels == 1) return;
  each_rgb_run<true>(image, [&](RgbRun& run, std::size_t count) {
    wide(
        [](std::uint8_t* __restrict r, std::uint8_t* __restrict g, std::uint8_t* __restrict b,
           std::size_t n, float part, float rest) MILLRACE_WIDE {
          for (std::size_t i = 0; i < n; ++i) {
            const auto gray = static_cast<float>(gray_of(r[i], g[i], b[i]));
            r[i] = cut_off(fused(gray, rest, r[i] * part));
            g[i] = cut_off(fused(gray, rest, g[i] * part));
            b[i] = cut_off(fused(gray, rest, b[i] * part));
          }
        },
        run.r, run.g, run.b, count, static_cast<float>(factor), rest_of(factor));
  });
}

void adjust_hue(const Image& image, double turn) {
  if (image.channels == 1) return;
  each_rgb_run<true>(image, [&](RgbRun& run, std::size_t count) {
    wide(
        [](std::uint8_t* __restrict r, std::uint8_t* __restrict g, std::uint8_t* __restrict b,
           std::size_t n, float by) MILLRACE_WIDE {
          for (std::size_t i = 0; i < n; ++i) {
            constexpr float kLevel = static_cast<float>(1.0 / 255);
            const float red = r[i] * kLevel, green = g[i] * kLevel, blue = b[i] * kLevel;
            const float high = std::max(red, std::max(green, blue));
            const float low = std::min(red, std::min(green, blue));
            const float range = high - low;
            const float divisor = high == low ? 1.0f : range;
            const float saturation = range / (high == low ? 1.0f : high);
            const float rc = (high - red) / divisor;
            const float gc = (high - green) / divisor;
            const float bc = (high - blue) / divisor;
            // Sixths of the circle from red; the whole turn that is added keeps it from being
            // negative.
            const float sixths = high == red     ? bc - gc
                                 : high == green ? (rc + 2.0f) - bc
                                                 : (gc + 4.0f) - rc;
            float hue = sixths * static_cast<float>(1.0 / 6) + 1.0f;
            hue -= hue >= 1.0f ? 1.0f : 0.0f;
            hue += by;
            hue += hue < 0.0f ? 1.0f : 0.0f;
            hue -= hue >= 1.0f ? 1.0f : 0.0f;
            const float h6 = hue * 6.0f;
            const int sector = static_cast<int>(h6);
            const float f = h6 - static_cast<float>(sector);
            // Levels up to 1 - 1e-7 and from 0 on: torch's clamps change nothing here.
            const float pale = 1.0f - saturation;
            const float q = (1.0f - saturation * f) * high;
            const float t = (saturation * f + pale) * high;
            const float p = pale * high;
            const int s = sector == 6 ? 0 : sector;  // h6 may round up to 6
            const float new_r = s == 0 || s == 5 ? high : s == 1 ? q : s == 4 ? t : p;
            const float new_g = s == 1 || s == 2 ? high : s == 3 ? q : s == 0 ? t : p;
            const float new_b = s == 3 || s == 4 ? high : s == 5 ? q : s == 2 ? t : p;
            constexpr float kScale = static_cast<float>(256.0 - 1e-3);
            r[i] = static_cast<std::uint8_t>(static_cast<int>(new_r * kScale));
            g[i] = static_cast<std::uint8_t>(static_cast<int>(new_g * kScale));
            b[i] = static_cast<std::uint8_t>(static_cast<int>(new_b * kScale));
          }
        },
        run.r, run.g, run.b, count, static_cast<float>(turn));
  });
}

void to_gray(const Image& image) {
  if (image.channels == 1) return;
  each_rgb_run<true>(image, [](RgbRun& run, std::size_t count) {
    wide(
        [](std::uint8_t* __restrict r, std::uint8_t* __restrict g, std::uint8_t* __restrict b,
           std::size_t n) MILLRACE_WIDE {
          for (std::size_t i = 0; i < n; ++i) {
            const auto gray = static_cast<std::uint8_t>(gray_of(r[i], g[i], b[i]));
            r[i] = gray;
            g[i] = gray;
            b[i] = gray;
          }
        },
        run.r, run.g, run.b, count);
  });
}

}  // namespace millrace
