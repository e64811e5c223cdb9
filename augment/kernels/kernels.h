// A writable strip of 8-bit output rows, which sampling kernels fill.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "augment/kernels/pass.h"
#include "base/simd.h"

namespace millrace::augment {

/// Rows from `top` on, in output coordinates; planar, interleaved or with one channel.
struct Canvas {
  std::uint8_t* data = nullptr;  ///< pixel (0, top), channel 0
  int top = 0;
  int channels = 0;
  std::ptrdiff_t row = 0;      ///< bytes from one row to the next
  std::ptrdiff_t pixel = 0;    ///< 1, or `channels` if interleaved
  std::ptrdiff_t channel = 0;  ///< bytes from one channel to the next of a pixel

  std::uint8_t* at(int x, int y, int c = 0) const {
    return data + (y - top) * row + x * pixel + c * channel;
  }
  /// Returns whether the channels of a pixel lie side by side (also if there is one).
  bool interleaved() const { return channels == 1 || channel == 1; }
};

// The inner loops over pixels, in one table per SIMD level. Every level gives the same bytes
// (determinism contract). Kernels may read up to kTailSlack bytes behind the last pixel of their
// input, and write only the requested pixels.

/// Maps 8-bit levels to 8-bit levels; aligned for vector loads.
struct alignas(64) LevelTable : std::array<std::uint8_t, 256> {};

/// The batch element for each level of one channel.
struct ElementTable {
  /// Bits of the f32, or of the f16 or bf16 in the low half.
  alignas(64) std::array<std::uint32_t, 256> bits;
  /// Copies of the bits byte by byte: plane b holds bits 8 b to 8 b + 7 (permutations look up
  /// bytes).
  alignas(64) std::array<LevelTable, 4> planes;
  /// Whether computed_element() gives the f32 of every level bit for bit, without a division and
  /// without a table.
  bool computed = false;
  float mean = 0;
  float inverse = 1, rest = 0;  ///< inverse + rest = 1 / std, to twice a float's precision
};

inline constexpr float kInverse255 = 1 / 255.0f;
inline constexpr float kRest255 = static_cast<float>(1 / 255.0 - double{kInverse255});

/// Computes (level / 255 - mean) / std with products in place of quotients. `fused` is a fused
/// multiply-add: a * b + c, rounded once.
template <class Fused>
float computed_element(int level, const ElementTable& table, Fused&& fused) {
  const auto product = [&](float a, float inverse, float rest) {
    return fused(a, inverse, a * rest);
  };
  const float x = product(static_cast<float>(level), kInverse255, kRest255) - table.mean;
  return product(x, table.inverse, table.rest);
}

/// Maps levels to elements; element i uses table i mod `period` (1 or 3).
struct Lookup {
  const ElementTable* elements;  ///< `period` tables; not read for 8-bit output
  const LevelTable* levels;      ///< `period` tables applied first, or null
  int period;
  /// Allows stores that bypass the caches, with elements in memory when the kernel returns. Set for
  /// a sample so large that it would evict what the next sample's decoding works on.
  bool past_caches = false;
};

/// A rectangle of pixels that are moved unchanged.
struct Block {
  const std::uint8_t* in;
  std::ptrdiff_t in_row;
  std::uint8_t* out;
  std::ptrdiff_t out_row;
  int width;   ///< bytes, or pixels where the kernel says so
  int height;  ///< rows
};

/// The parts of a pass that a warp kernel needs. Positions are fixed point with `bits` bits of
/// fraction (12 to 22) and fit 32 bits. For vector kernels, offsets inside the bounds also fit, and
/// `inside` is not empty.
struct WarpBlock {
  const std::uint8_t* source;  ///< (0, 0) of the source frame
  std::ptrdiff_t row, pixel, channel;
  const Bounds* bounds;
  Rect inside;  ///< inside all bounds and in memory: vector kernels read nowhere else
  bool clamp;
  int bits;
  /// Position of output pixel (x, y): u = u_0 + u_x x + u_y y modulo 2^32, and v alike.
  std::uint32_t u_0, u_x, u_y, v_0, v_x, v_y;
  /// If not null, positions stored per output column x, for one row; they replace the formula.
  const std::int32_t* u = nullptr;
  const std::int32_t* v = nullptr;
};

/// A map with a denominator, after an index move, to fixed-point positions. A position farther out
/// than 2^30, behind the horizon or not a number becomes +-2^30.
struct Projection {
  std::array<double, 9> map;
  IndexMove move;
  int bits;
  bool half_pixel_in;  ///< bilinear taps lie at pixel centres
};

/// Number of stored positions behind the last one that vector kernels may read.
inline constexpr int kPositionSlack = 64;

/// Bits of the reduction's weights and intermediate sums. Weights are whole numbers that sum up to
/// 2^14 for every output pixel. Rows are summed to levels with 7 bits of fraction, and those to
/// levels, each rounded half up. All sums are exact in 32 bits.
inline constexpr int kTapBits = 14;
inline constexpr int kRowBits = 7;

/// Taps of one axis: output i is the sum of weights[i * stride + k] * input[first[i] + k], k in [0,
/// counts[i]). Further weights up to `stride`, a multiple of 4, are zero.
struct Taps {
  std::int32_t* first;
  std::int32_t* counts;
  std::int16_t* weights;
  int outputs;
  int stride;
  int most;  ///< maximum of counts
};

/// Taps along a row in the order of a kernel: by output, or by groups of outputs whose taps lie
/// within 64 numbers of the row. See reduce.cpp.
struct Windows {
  static constexpr int kInputs = 64;
  static constexpr int outputs(int channels) { return channels == 1 ? 16 : 5; }
  static constexpr int groups(int pixels, int channels) {
    return (pixels + outputs(channels) - 1) / outputs(channels);
  }
  /// Numbers in `orders_and_weights` per pair of taps of a group.
  static constexpr int kPair = 64;

  std::int32_t* bases = nullptr;               ///< where in the row each output or group begins
  std::int16_t* orders_and_weights = nullptr;  ///< groups x pairs x kPair, 64-byte aligned
  int pairs = 0;
  bool grouped = false;
  bool narrow = false;  ///< the taps of a group lie within 32 numbers
};

struct Kernels {
  // moves.cpp:
  void (*fill)(std::uint8_t* out, std::ptrdiff_t row, int bytes, int rows, std::uint8_t level);
  void (*copy)(const Block& bytes);
  /// Sets output pixel x to the pixel x positions before `in`; 1 or 3 channels side by side.
  void (*reverse)(const Block& pixels, int channels);
  /// Splits interleaved RGB into planes that lie `plane` bytes apart. With `reversed`, mirrors as
  /// reverse() does.
  void (*split)(const Block& pixels, std::ptrdiff_t plane, bool reversed);
  /// Joins planes that lie `plane` bytes apart into interleaved RGB. With `reversed`, mirrors as
  /// reverse() does.
  void (*join)(const Block& pixels, std::ptrdiff_t plane, bool reversed);

  /// positions.cpp: fills u[x], v[x] for x in [begin, end) of a row by a homogeneous map.
  void (*project)(const Projection& projection, int y, int begin, int end, std::int32_t* u,
                  std::int32_t* v);
  // nearest.cpp, bilinear.cpp: sample the pixels of `rect`.
  void (*nearest)(const WarpBlock& warp, const Rect& rect, const Canvas& canvas);
  void (*bilinear)(const WarpBlock& warp, const Rect& rect, const Canvas& canvas);

  // reduce.cpp:
  /// Computes out[i] = sum of weights[k] * in[k * row + i], k < taps, with kRowBits bits of
  /// fraction. weights[taps] must be readable, and 0 if taps is odd. May write kTailSlack bytes
  /// behind `out`.
  void (*reduce_rows)(const std::uint8_t* in, std::ptrdiff_t row, const std::int16_t* weights,
                      int taps, int bytes, std::int16_t* out);
  /// Reduces one row of reduced rows; interleaved channels (1 or 3) in and out. May read 2
  /// kTailSlack bytes behind `in`.
  void (*reduce_pixels)(const std::int16_t* in, const Taps& taps, const Windows& windows,
                        int channels, std::uint8_t* out);
  /// Prepares `windows` once for all rows. Its memory must hold taps.most taps.
  void (*prepare_windows)(const Taps& taps, int channels, Windows& windows);

  // lookup.cpp: map n levels to n elements of 1, 2 or 4 bytes.
  void (*lookup8)(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out);
  void (*lookup16)(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out);
  void (*lookup32)(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out);
};

/// Returns the kernels of one level, which the processor must support.
const Kernels& kernels(base::Simd level);
/// Returns the kernels of simd_level().
inline const Kernels& kernels() { return kernels(base::simd_level()); }

// Each family of kernels enters its functions in the table.
void add_move_kernels(base::Simd level, Kernels& table);
void add_position_kernels(base::Simd level, Kernels& table);
void add_nearest_kernels(base::Simd level, Kernels& table);
void add_bilinear_kernels(base::Simd level, Kernels& table);
void add_reduce_rows_kernels(base::Simd level, Kernels& table);
void add_reduce_pixels_kernels(base::Simd level, Kernels& table);
void add_lookup_kernels(base::Simd level, Kernels& table);

}  // namespace millrace::augment
