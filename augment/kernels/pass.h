// A pass over the pixels: the result of folding a chain of geometric augmentations, ready for
// resample().
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "augment/kernels/inline_vector.h"
#include "millrace/image.h"
#include "millrace/math.hpp"

namespace millrace::augment {

/// An 8-bit colour for pixels outside the image.
using Fill = std::array<std::uint8_t, 4>;

/// How a level at a position between pixels is computed.
enum class Filter : std::uint8_t {
  none,      ///< an index move: every output pixel is one input pixel (or fill), bit for bit
  nearest,   ///< the pixel whose square holds the position
  bilinear,  ///< two taps per axis, not antialiased
  reduce,    ///< axis-aligned, triangle filter as wide as an output pixel: antialiased
};

/// A rectangle; positions outside it show `fill`.
struct Bound {
  Rect rect;
  Fill fill{};
};

/// Bounds in order: the first one that a position leaves decides.
using Bounds = InlineVector<Bound, 12>;

/// A bound in a frame between the output and the source, from warps that were multiplied.
struct MappedBound {
  std::array<double, 9> map;  ///< warp's output frame to that frame, continuous, homogeneous
  Bound bound;
};

/// A signed permutation of pixel indices: (x, y) -> (xx x + xy y + x0, yx x + yy y + y0). Exactly
/// one of xx, xy is +-1 and the other 0; likewise yx, yy.
struct IndexMove {
  int xx = 1, xy = 0, x0 = 0;
  int yx = 0, yy = 1, y0 = 0;
};

/// A coordinate farther out than any bound.
inline constexpr int kFarAway = 1 << 20;

/// Maps an output pixel -> (move) -> warp's output pixel -> (map, at pixel centres) -> source
/// frame. A position is tested against `outer` first, then `middle`, then `inner`.
/// Coordinates are continuous (pixel i covers [i, i + 1)). Sides are at most 65,535 pixels, and
/// bounds and moves stay below 2^18.
///
/// With Filter::none, `move` and `map` are identities: moves are folded into `source`'s strides,
/// and `outer` and `middle` are empty.
/// With nearest and bilinear, `inner` holds at least one bound.
/// With reduce, `map` is m0 x + m2, m4 y + m5 with m0, m4 > 0, and `inner` holds one bound: taps
/// are clipped to its rectangle and renormalised, so that no fill is ever mixed in.
struct Pass {
  ImageView source;  ///< (0, 0) is the source frame's origin
  /// The part of the source frame in memory. Nothing else of it is read, not even where the result
  /// does not count. Every tap inside all of `inner` lies in it. By default only the bounds limit
  /// reads.
  Rect held{-kFarAway, -kFarAway, kFarAway, kFarAway};
  Size output;
  Filter filter = Filter::none;
  Border border = Border::constant;  ///< with clamp, `inner` holds one bound, whose fill is unused
  IndexMove move;
  std::array<double, 9> map{1, 0, 0, 0, 1, 0, 0, 0, 1};
  Bounds outer;                         ///< in the output's frame, pixel indices
  InlineVector<MappedBound, 4> middle;  ///< tested at the position of the output pixel's centre
  Bounds inner;                         ///< in the source frame, pixel indices (of taps)
};

// Maps output pixels to positions in fixed point.

/// Half-open range of output columns.
struct ColumnRange {
  int begin;
  int end;
};

/// One axis of an affine map along an output row: position(x) = start + x * step.
struct Line {
  std::int64_t start;
  std::int64_t step;

  std::int64_t at(int x) const { return start + step * x; }

  /// Returns the first x in [begin, end] from which on the line is at `level` or past it, in the
  /// direction of step, which is not 0. Guesses in floating point and corrects in exact steps.
  int crossing(std::int64_t level, int begin, int end) const {
    const double guess = static_cast<double>(level - start) / static_cast<double>(step);
    int x = guess <= begin ? begin : guess >= end ? end : static_cast<int>(guess);
    if (step > 0) {
      while (x > begin && at(x - 1) >= level) --x;
      while (x < end && at(x) < level) ++x;
    } else {
      while (x > begin && at(x - 1) < level) --x;
      while (x < end && at(x) >= level) ++x;
    }
    return x;
  }

  /// Returns the x of `span` with low <= position(x) < high.
  ColumnRange inside(ColumnRange span, std::int64_t low, std::int64_t high) const {
    if (span.begin >= span.end) return span;
    if (step == 0) {
      if (start >= low && start < high) return span;
      return {span.begin, span.begin};
    }
    const int a = crossing(step > 0 ? low : high, span.begin, span.end);
    const int b = crossing(step > 0 ? high : low, a, span.end);
    return {a, b};
  }
};

/// Returns the bits of fraction for positions in a frame, 12 to 22, such that 2^30 lies outside of
/// `rect`.
inline int fraction_bits(const Rect& rect) {
  const int extent = std::max({1, rect.x1, rect.y1, -rect.x0, -rect.y0});
  return std::min(22, 30 - static_cast<int>(std::bit_width(static_cast<unsigned>(extent))));
}

/// Returns the bits of fraction for a frame that holds all of `bounds`, which must not be empty.
inline int fraction_bits(const Bounds& bounds) {
  Rect around = bounds[0].rect;
  for (const auto& [rect, fill] : bounds)
    around = {std::min(around.x0, rect.x0), std::min(around.y0, rect.y0),
              std::max(around.x1, rect.x1), std::max(around.y1, rect.y1)};
  return fraction_bits(around);
}

inline bool is_affine(const std::array<double, 9>& map) {
  return map[6] == 0 && map[7] == 0 && map[8] == 1;
}

/// An affine map after an index move. Gives the position of output pixel (x, y)'s centre, less
/// `half`.
struct FixedWarp {
  int bits;
  std::int64_t u_x, u_y, u_0, v_x, v_y, v_0;

  /// `half_pixel_in` is set for bilinear, whose taps lie at pixel centres.
  FixedWarp(const std::array<double, 9>& m, const IndexMove& move, int fraction, bool half_pixel_in)
      : bits(fraction) {
    const auto one = static_cast<double>(std::int64_t{1} << bits);
    // Limits coefficients: anything farther out is outside of everything, and sums of limited ones
    // fit 63 bits.
    const auto fixed = [&](double value, double most) {
      return std::int64_t{floor_to_whole(std::clamp(value * one, -most, most) + 0.5)};
    };
    const std::int64_t half = half_pixel_in ? std::int64_t{1} << (bits - 1) : 0;
    constexpr double kStep = 0x1p42, kStart = 0x1p60;
    const std::int64_t ux = fixed(m[0], kStep), uy = fixed(m[1], kStep);
    const std::int64_t vx = fixed(m[3], kStep), vy = fixed(m[4], kStep);
    // Start at the centre of moved output pixel (0, 0), then add the moves, which are whole numbers
    // and exact.
    u_0 = fixed(m[0] * 0.5 + m[1] * 0.5 + m[2], kStart) - half + ux * move.x0 + uy * move.y0;
    v_0 = fixed(m[3] * 0.5 + m[4] * 0.5 + m[5], kStart) - half + vx * move.x0 + vy * move.y0;
    u_x = ux * move.xx + uy * move.yx;
    v_x = vx * move.xx + vy * move.yx;
    u_y = ux * move.xy + uy * move.yy;
    v_y = vx * move.xy + vy * move.yy;
  }
  Line u(int y) const { return {u_0 + u_y * y, u_x}; }
  Line v(int y) const { return {v_0 + v_y * y, v_x}; }
};

/// A position in the plane.
struct Point {
  double x, y;
};

/// Returns where a homogeneous map takes the centre of output pixel (x, y). Behind the horizon the
/// result is not finite, or mirrored.
inline Point mapped(const std::array<double, 9>& m, const IndexMove& move, int x, int y) {
  const double a = move.xx * x + move.xy * y + move.x0 + 0.5;
  const double b = move.yx * x + move.yy * y + move.y0 + 0.5;
  const double w = m[6] * a + m[7] * b + m[8];
  return {(m[0] * a + m[1] * b + m[2]) / w, (m[3] * a + m[4] * b + m[5]) / w};
}

}  // namespace millrace::augment
