// Colour arithmetic that several ops share.
#include "augment/ops/color.h"

#include <algorithm>

#include "augment/ops/pixels.h"

namespace millrace::augment {
namespace {

/// Truncates to a whole level; values outside 0..255 become its ends.
MILLRACE_WIDE inline std::uint8_t cut_off(float value) {
  value = value > 0 ? value : 0;
  value = value < 255 ? value : 255;
  return static_cast<std::uint8_t>(static_cast<int>(value));
}

/// Returns a gray level as torch computes and truncates it: two fused steps.
MILLRACE_WIDE inline int gray_of(float r, float g, float b) {
  return static_cast<int>(fused(b, 0.114f, fused(g, 0.587f, r * 0.2989f)));
}

/// Returns the mean gray level of all pixels; the sum is exact.
float mean_gray(const Image& image) {
  std::uint64_t sum = 0;
  if (image.channels == 1) {
    each_row(image, [&](const std::uint8_t* row, std::size_t bytes) {
      for (std::size_t done = 0; done < bytes; done += 65536) {  // short enough for sums of 32 bits
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

/// Computes 1 - factor in double precision, as Python does.
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

namespace {

/// Turns the hue of one pixel. Computes all cases and selects one, because branches do not
/// vectorise.
MILLRACE_WIDE inline void turn_hue(std::uint8_t& r, std::uint8_t& g, std::uint8_t& b, float by) {
  constexpr float kLevel = static_cast<float>(1.0 / 255);
  const float red = r * kLevel, green = g * kLevel, blue = b * kLevel;
  float high = red > green ? red : green;
  high = high > blue ? high : blue;
  float low = red < green ? red : green;
  low = low < blue ? low : blue;
  const float range = high - low;
  const auto none = static_cast<float>(high == low);  // avoids a division by 0
  const float saturation = range / (high + none);
  const float divisor = range + none;
  const float rc = (high - red) / divisor;
  const float gc = (high - green) / divisor;
  const float bc = (high - blue) / divisor;
  // Sixths of the circle, from red on. Adding a whole turn keeps them from being negative.
  const float from_red = bc - gc, from_green = (rc + 2.0f) - bc, from_blue = (gc + 4.0f) - rc;
  float sixths = high == green ? from_green : from_blue;
  sixths = high == red ? from_red : sixths;
  float hue = sixths * static_cast<float>(1.0 / 6) + 1.0f;
  hue -= static_cast<float>(hue >= 1.0f);
  hue += by;
  hue += static_cast<float>(hue < 0.0f);
  hue -= static_cast<float>(hue >= 1.0f);
  const float h6 = hue * 6.0f;
  const int sector = static_cast<int>(h6);  // 6, by rounding, means 0: the same levels
  const float f = h6 - static_cast<float>(sector);
  const float pale = 1.0f - saturation;
  constexpr float kScale = static_cast<float>(256.0 - 1e-3);
  const int v = static_cast<int>(high * kScale);
  const int q = static_cast<int>((1.0f - saturation * f) * high * kScale);
  const int t = static_cast<int>((saturation * f + pale) * high * kScale);
  const int p = static_cast<int>(pale * high * kScale);
  int new_r = sector == 1 ? q : v, new_g = sector == 0 ? t : v, new_b = sector == 2 ? t : v;
  new_r = sector == 4 ? t : new_r;
  new_g = sector == 3 ? q : new_g;
  new_b = sector == 5 ? q : new_b;
  new_g = sector == 6 ? t : new_g;
  new_r = ((sector == 2) | (sector == 3)) ? p : new_r;
  new_g = ((sector == 4) | (sector == 5)) ? p : new_g;
  new_b = ((sector < 2) | (sector == 6)) ? p : new_b;
  r = static_cast<std::uint8_t>(new_r);
  g = static_cast<std::uint8_t>(new_g);
  b = static_cast<std::uint8_t>(new_b);
}

}  // namespace

void adjust_hue(const Image& image, double turn) {
  if (image.channels == 1) return;
  each_rgb_run<true>(image, [&](RgbRun& run, std::size_t count) {
    wide(
        [](std::uint8_t* __restrict r, std::uint8_t* __restrict g, std::uint8_t* __restrict b,
           std::size_t n, float by) MILLRACE_WIDE {
          for (std::size_t i = 0; i < n; ++i) turn_hue(r[i], g[i], b[i], by);
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

}  // namespace millrace::augment
