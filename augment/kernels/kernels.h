// The inner loops over pixels, one table of them a SIMD level. Every level gives the same bytes.
// Kernels may read up to kTailSlack bytes behind the last pixel that they are asked for, and write
// only what they are asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "augment/kernels/canvas.h"
#include "augment/pass.h"
#include "augment/simd.h"

namespace millrace {

/// 8-bit level to 8-bit level; aligned for vector loads.
struct alignas(64) LevelTable : std::array<std::uint8_t, 256> {};

/// What the levels of one channel become in the batch.
struct ElementTable {
  alignas(64) std::array<std::uint32_t, 256> bits;  ///< of the f32, or of the f16 or bf16 below it
  /// The same, byte by byte: plane b holds bits 8 b to 8 b + 7 (permutations look up bytes).
  alignas(64) std::array<LevelTable, 4> planes;
};

/// Levels to elements, element i by table i mod `period` (1 or 3).
struct Lookup {
  const ElementTable* elements;  ///< `period` tables; not read for 8-bit output
  const LevelTable* levels;      ///< `period` tables applied first, or null
  int period;
};

/// A rectangle of pixels that are moved, not changed.
struct Block {
  const std::uint8_t* in;
  std::ptrdiff_t in_row;
  std::uint8_t* out;
  std::ptrdiff_t out_row;
  int width;   ///< bytes, or pixels where the kernel says so
  int height;  ///< rows
};

/// What a warp kernel needs to know of a pass. Positions are fixed point with `bits` bits of
/// fraction (12 to 22) and fit 32 bits. For vector kernels, offsets inside the bounds do too, and
/// `inside` is not empty.
struct WarpBlock {
  const std::uint8_t* source;  ///< (0, 0) of the source frame
  std::ptrdiff_t row, pixel, channel;
  const Bounds* bounds;
  Rect inside;  ///< inside all bounds
  bool clamp;
  int bits;
  /// Position of output pixel (x, y): u = u_0 + u_x x + u_y y modulo 2^32, likewise v ...
  std::uint32_t u_0, u_x, u_y, v_0, v_x, v_y;
  /// ... or, where not null, stored for output column x of the one row asked for.
  const std::int32_t* u = nullptr;
  const std::int32_t* v = nullptr;
};

/// Weights of the reduction are whole numbers that sum up to 2^14 for every output pixel; rows are
/// summed to levels with 7 bits of fraction, rounded half up, which are summed to levels, rounded
/// half up. All sums are exact in 32 bits.
inline constexpr int kTapBits = 14;
inline constexpr int kRowBits = 7;

/// Taps of one axis: output i is the sum of weights[i * stride + k] * input[first[i] + k], k in
/// [0, counts[i]); weights behind are zero up to `stride`, which is even.
struct Taps {
  std::int32_t* first;
  std::int32_t* counts;
  std::int16_t* weights;
  int outputs;
  int stride;
};

struct Kernels {
  // moves.cpp
  void (*fill)(std::uint8_t* out, std::ptrdiff_t row, int bytes, int rows, std::uint8_t level);
  void (*copy)(const Block& bytes);
  /// Output pixel x is the pixel x places in front of `in`; 1 or 3 channels side by side.
  void (*reverse)(const Block& pixels, int channels);
  /// Interleaved RGB to planes that lie `plane` bytes apart; `reversed`: mirrored as above.
  void (*split)(const Block& pixels, std::ptrdiff_t plane, bool reversed);
  /// Planes that lie `plane` bytes apart to interleaved RGB; `reversed`: mirrored as above.
  void (*join)(const Block& pixels, std::ptrdiff_t plane, bool reversed);

  // nearest.cpp, bilinear.cpp: the pixels of `rect`.
  void (*nearest)(const WarpBlock& warp, const Rect& rect, const Canvas& canvas);
  void (*bilinear)(const WarpBlock& warp, const Rect& rect, const Canvas& canvas);

  // reduce.cpp
  /// out[i] = sum of weights[k] * in[k * row + i], k < taps, to kRowBits bits of fraction.
  void (*reduce_rows)(const std::uint8_t* in, std::ptrdiff_t row, const std::int16_t* weights,
                      int taps, int bytes, std::int16_t* out);
  /// One row of reduced rows, interleaved channels (1 or 3) in and out.
  void (*reduce_pixels)(const std::int16_t* in, const Taps& taps, int channels, std::uint8_t* out);

  // lookup.cpp: n levels to n elements of 1, 2 or 4 bytes.
  void (*lookup8)(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out);
  void (*lookup16)(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out);
  void (*lookup32)(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out);
};

/// Those of one level, which the processor must be able to do.
const Kernels& kernels(Simd level);
/// Those of simd_level().
inline const Kernels& kernels() { return kernels(simd_level()); }

// How the families of kernels put themselves into the table.
void add_move_kernels(Simd level, Kernels& table);
void add_nearest_kernels(Simd level, Kernels& table);
void add_bilinear_kernels(Simd level, Kernels& table);
void add_reduce_kernels(Simd level, Kernels& table);
void add_lookup_kernels(Simd level, Kernels& table);

}  // namespace millrace
