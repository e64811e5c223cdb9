// Parts that pixel ops share: the parameter p, loops over pixels, colours, smoothing and
// displacement.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "augment/kernels/kernels.h"
#include "augment/plan/dispatch_simd.h"
#include "millrace/buffer.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

// The parameter p, the probability that a sample is changed.

constexpr Parameter p_param(const char* fallback) {
  return number("p", fallback, 0, 1, "probability that a sample is changed");
}

/// Draws whether this sample is changed, and reports the draw.
inline bool is_applied(Call& call, double p) {
  const bool applied = call.chance(p);
  call.report("applied", applied);
  return applied;
}

// Loops over pixels for pixel ops: rows as runs of bytes, RGB runs as three planes, and tables.

inline std::size_t row_bytes(const Image& image) {
  return static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.channels);
}

/// Calls body(bytes, count) for each row, or once if rows follow each other without a gap.
template <class Body>
void each_row(const Image& image, const Body& body) {
  const std::size_t bytes = row_bytes(image);
  if (image.row == static_cast<std::ptrdiff_t>(bytes)) {
    body(image.data, bytes * static_cast<std::size_t>(image.height));
    return;
  }
  for (int y = 0; y < image.height; ++y) body(image.data + y * image.row, bytes);
}

/// A run of pixels of an RGB image, channel by channel.
struct RgbRun {
  static constexpr std::size_t kMax = 1024;
  alignas(64) std::uint8_t r[kMax];
  alignas(64) std::uint8_t g[kMax];
  alignas(64) std::uint8_t b[kMax];
};

inline void split(const std::uint8_t* pixels, std::size_t count, RgbRun& run) {
  dispatch_simd(
      [](const std::uint8_t* __restrict in, std::size_t n, std::uint8_t* __restrict r,
         std::uint8_t* __restrict g, std::uint8_t* __restrict b) MILLRACE_SIMD_BODY {
        for (std::size_t i = 0; i < n; ++i) {
          r[i] = in[3 * i];
          g[i] = in[3 * i + 1];
          b[i] = in[3 * i + 2];
        }
      },
      pixels, count, run.r, run.g, run.b);
}

inline void join(const RgbRun& run, std::size_t count, std::uint8_t* pixels) {
  dispatch_simd(
      [](std::uint8_t* __restrict out, std::size_t n, const std::uint8_t* __restrict r,
         const std::uint8_t* __restrict g, const std::uint8_t* __restrict b) MILLRACE_SIMD_BODY {
        for (std::size_t i = 0; i < n; ++i) {
          out[3 * i] = r[i];
          out[3 * i + 1] = g[i];
          out[3 * i + 2] = b[i];
        }
      },
      pixels, count, run.r, run.g, run.b);
}

/// Calls body(run, count) for all pixels of an RGB image. With `kWrites`, writes the run back.
template <bool kWrites, class Body>
void each_rgb_run(const Image& image, const Body& body) {
  RgbRun run;
  each_row(image, [&](std::uint8_t* row, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes; done += 3 * RgbRun::kMax) {
      const std::size_t count = std::min(RgbRun::kMax, (bytes - done) / 3);
      split(row + done, count, run);
      body(run, count);
      if constexpr (kWrites) join(run, count, row + done);
    }
  });
}

/// Replaces each level by its channel's table entry.
inline void apply_levels(const Image& image, const LevelTable* tables) {
  const bool rgb = image.channels == 3;
  const LevelTable &first = tables[0], &second = tables[rgb ? 1 : 0], &third = tables[rgb ? 2 : 0];
  each_row(image, [&](std::uint8_t* row, std::size_t bytes) {
    std::size_t i = 0;
    if (base::simd_level() == base::Simd::avx512 && bytes > kTailSlack) {
      // The kernel may read past the end of its input, and this image may have no bytes there.
      i = (bytes - kTailSlack) / 3 * 3;
      kernels().lookup8(row, i, {nullptr, tables, image.channels},
                        reinterpret_cast<std::byte*>(row));
    }
    for (; i + 3 <= bytes; i += 3) {
      row[i] = first[row[i]];
      row[i + 1] = second[row[i + 1]];
      row[i + 2] = third[row[i + 2]];
    }
    for (; i < bytes; ++i) row[i] = first[row[i]];  // gray: rows need not be multiples of three
  });
}

// Colour adjustments of 8-bit images with torchvision's arithmetic on 8-bit tensors: single
// precision in the same order, truncated to whole levels. Gray images have no saturation and no
// hue, so those adjustments leave them unchanged.

/// Fills `table` with level * factor.
void brightness_table(float factor, LevelTable& table);

/// Multiplies each level by `factor`.
void adjust_brightness(const Image& image, double factor);
/// Moves levels away from (factor above 1) or towards (below 1) the mean gray level of the image.
void adjust_contrast(const Image& image, double factor);
/// Moves levels away from or towards each pixel's own gray level.
void adjust_saturation(const Image& image, double factor);
/// Turns the hue by `turn`, a fraction of the full circle in [-0.5, 0.5].
void adjust_hue(const Image& image, double turn);
/// Sets all channels to 0.2989 R + 0.587 G + 0.114 B.
void to_gray(const Image& image);

// Gaussian smoothing in two one-dimensional passes. Borders are mirrored without repeating the
// outermost element (torch's "reflect"). Sums use single precision in a fixed order: equal on every
// machine, and within rounding of torchvision's two-dimensional sum.

/// Returns an index of -n..2n and beyond, mirrored into 0..n-1.
constexpr int mirrored(int i, int n) {
  if (n == 1) return 0;
  const int period = 2 * (n - 1);
  i %= period;
  if (i < 0) i += period;
  return i < n ? i : period - i;
}

/// Weights along one axis: 2 * radius + 1 of them, where [0] is the middle one and [j] lies j away.
struct SmoothingWeights {
  int radius = 0;
  float* at = nullptr;
};

/// Writes radius + 1 weights of a Gaussian cut off at `radius`; the full kernel sums up to 1.
SmoothingWeights gaussian_weights(int radius, double sigma, float* room);

/// Rows and columns of elements, smoothed row by row. `step` elements lie from one column to the
/// next (the channels of an interleaved image).
struct SmoothingPlan {
  int width, height, step;
  SmoothingWeights x, y;

  std::size_t row() const {
    return static_cast<std::size_t>(width) * static_cast<std::size_t>(step);
  }
  /// Returns the number of smoothed rows to keep: those that one output row depends on.
  int kept() const { return 2 * y.radius + 1 < height ? 2 * y.radius + 1 : height; }
  /// Returns the bytes of scratch that smooth() needs.
  std::size_t scratch() const;
};

/// Smooths 8-bit levels in place; rounds to nearest, halves to even.
void smooth(const SmoothingPlan& plan, std::uint8_t* levels, std::ptrdiff_t row_bytes,
            void* scratch);
/// Smooths elements in place, row after row.
void smooth(const SmoothingPlan& plan, float* elements, void* scratch);

// Reads an image at positions displaced pixel by pixel.

struct Displacement {
  const float* x;  ///< pixels to the right, width * height of them, row by row
  const float* y;  ///< pixels down
};

/// Sets output pixel (x, y) to the input at (x + dx, y + dy), or to `fill` outside the input. `to`
/// has the size of `from`. Bilinear weights have 11 bits and results are rounded to nearest, halves
/// up. Nearest rounds halves to even positions, as torch's grid_sample does.
void displace(const ConstImage& from, const Displacement& by, Interpolation interpolation,
              const std::uint8_t (&fill)[4], const Image& to);

}  // namespace millrace::augment
