// The inner loops over pixels, one table of them a SIMD level. Every level gives the same bytes.
// Kernels may read up to kTailSlack bytes behind the last pixel that they are asked for, and write
// only what they are asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "augment/kernels/canvas.h"
#include "augment/plan/pass.h"
#include "base/simd.h"

namespace millrace::augment {

/// 8-bit level to 8-bit level; aligned for vector loads.
struct alignas(64) LevelTable : std::array<std::uint8_t, 256> {};

/// What the levels of one channel become in the batch.
struct ElementTable {
  alignas(64) std::array<std::uint32_t, 256> bits;  ///< of the f32, or of the f16 or bf16 below it
  /// The same, byte by byte: plane b holds bits 8 b to 8 b + 7 (permutations look up bytes).
  alignas(64) std::array<LevelTable, 4> planes;
  /// Where `computed`, the f32 of a level also comes out bit for bit as computed_element() has it,
  /// without a division and without a table.
  bool computed = false;
  float mean = 0;
  float inverse = 1, rest = 0;  ///< inverse + rest = 1 / std, to twice a float's precision
};

inline constexpr float kInverse255 = 1 / 255.0f;
inline constexpr float kRest255 = static_cast<float>(1 / 255.0 - double{kInverse255});

/// (level / 255 - mean) / std with products for quotients. `fused` is fused multiply-and-add:
/// a * b + c, rounded once.
template <class Fused>
float computed_element(int level, const ElementTable& table, Fused&& fused) {
  const auto product = [&](float a, float inverse, float rest) {
    return fused(a, inverse, a * rest);
  };
  const float x = product(static_cast<float>(level), kInverse255, kRest255) - table.mean;
  return product(x, table.inverse, table.rest);
}

/// Levels to elements, element i by table i mod `period` (1 or 3).
struct Lookup {
  const ElementTable* elements;  ///< `period` tables; not read for 8-bit output
  const LevelTable* levels;      ///< `period` tables applied first, or null
  int period;
  /// Elements may be written past the caches, and are in memory when the kernel returns: for a
  /// sample so large that it would push out what the next one's decoding works on.
  bool past_caches = false;
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
  Rect inside;  ///< inside all bounds and in memory: vector kernels read nowhere else
  bool clamp;
  int bits;
  /// Position of output pixel (x, y): u = u_0 + u_x x + u_y y modulo 2^32, likewise v ...
  std::uint32_t u_0, u_x, u_y, v_0, v_x, v_y;
  /// ... or, where not null, stored for output column x of the one row asked for.
  const std::int32_t* u = nullptr;
  const std::int32_t* v = nullptr;
};

/// A map with a denominator, behind an index move, to positions in fixed point. What lies farther
/// out than 2^30, behind the horizon or nowhere becomes +-2^30.
struct Projection {
  std::array<double, 9> map;
  IndexMove move;
  int bits;
  bool half_pixel_in;  ///< bilinear taps lie at pixel centres
};

/// Vector kernels read so many stored positions behind the last one.
inline constexpr int kPositionSlack = 64;

/// Weights of the reduction are whole numbers that sum up to 2^14 for every output pixel; rows are
/// summed to levels with 7 bits of fraction, rounded half up, which are summed to levels, rounded
/// half up. All sums are exact in 32 bits.
inline constexpr int kTapBits = 14;
inline constexpr int kRowBits = 7;

/// Taps of one axis: output i is the sum of weights[i * stride + k] * input[first[i] + k], k in
/// [0, counts[i]); weights behind are zero up to `stride`, which is a multiple of 4.
struct Taps {
  std::int32_t* first;
  std::int32_t* counts;
  std::int16_t* weights;
  int outputs;
  int stride;
  int most;  ///< the greatest of counts
};

/// Taps along a row in an order that a kernel likes: by output, or by groups of outputs whose taps
/// lie within 64 numbers of the row. See reduce_pixels.cpp.
struct Windows {
  static constexpr int kInputs = 64;
  static constexpr int outputs(int channels) { return channels == 1 ? 16 : 5; }
  static constexpr int groups(int pixels, int channels) {
    return (pixels + outputs(channels) - 1) / outputs(channels);
  }
  /// Numbers of `orders_and_weights` for each pair of taps of a group.
  static constexpr int kPair = 64;

  std::int32_t* bases = nullptr;  ///< pixels, rounded up to 4: where in the row to begin
  std::int16_t* orders_and_weights = nullptr;  ///< groups x pairs x kPair, 64-byte aligned
  int pairs = 0;
  bool grouped = false;
  bool narrow = false;  ///< the taps of a group lie within 32 numbers
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

  /// positions.cpp: fills u[x], v[x] for x in [begin, end) of a row by a homogeneous map.
  void (*project)(const Projection& projection, int y, int begin, int end, std::int32_t* u,
                  std::int32_t* v);
  // nearest.cpp, bilinear.cpp: the pixels of `rect`.
  void (*nearest)(const WarpBlock& warp, const Rect& rect, const Canvas& canvas);
  void (*bilinear)(const WarpBlock& warp, const Rect& rect, const Canvas& canvas);

  // reduce_rows.cpp, reduce_pixels.cpp
  /// out[i] = sum of weights[k] * in[k * row + i], k < taps, to kRowBits bits of fraction.
  /// weights[taps] can be read and is 0 where taps is odd; `out` has kTailSlack bytes behind it,
  /// which may be written.
  void (*reduce_rows)(const std::uint8_t* in, std::ptrdiff_t row, const std::int16_t* weights,
                      int taps, int bytes, std::int16_t* out);
  /// One row of reduced rows, interleaved channels (1 or 3) in and out; `in` has 2 kTailSlack bytes
  /// behind it.
  void (*reduce_pixels)(const std::int16_t* in, const Taps& taps, const Windows& windows,
                        int channels, std::uint8_t* out);
  /// Once for all rows. The memory of `windows` is there for taps.most taps.
  void (*prepare_windows)(const Taps& taps, int channels, Windows& windows);

  // lookup.cpp: n levels to n elements of 1, 2 or 4 bytes.
  void (*lookup8)(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out);
  void (*lookup16)(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out);
  void (*lookup32)(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out);
};

/// Those of one level, which the processor must be able to do.
const Kernels& kernels(base::Simd level);
/// Those of simd_level().
inline const Kernels& kernels() { return kernels(base::simd_level()); }

// How the families of kernels put themselves into the table.
void add_move_kernels(base::Simd level, Kernels& table);
void add_position_kernels(base::Simd level, Kernels& table);
void add_nearest_kernels(base::Simd level, Kernels& table);
void add_bilinear_kernels(base::Simd level, Kernels& table);
void add_reduce_rows_kernels(base::Simd level, Kernels& table);
void add_reduce_pixels_kernels(base::Simd level, Kernels& table);
void add_lookup_kernels(base::Simd level, Kernels& table);

}  // namespace millrace::augment
