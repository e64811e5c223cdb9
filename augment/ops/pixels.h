// Loops over pixels for pixel ops: rows as runs of bytes, RGB runs as three planes, and tables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "augment/kernels/kernels.h"
#include "augment/plan/dispatch_simd.h"
#include "millrace/buffer.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

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

}  // namespace millrace::augment
