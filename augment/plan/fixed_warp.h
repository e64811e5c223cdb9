// Maps output pixels to positions in fixed point.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "augment/plan/pass.h"
#include "millrace/math.hpp"

namespace millrace::augment {

/// Half-open range of output columns.
struct Span {
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
  Span inside(Span span, std::int64_t low, std::int64_t high) const {
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
