#include "augment/plan/mask_warp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "augment/kernels/pass.h"

namespace millrace::augment {
namespace {

/// Returns whether an affine map takes the centres of all output pixels into the window, even if
/// they are rounded to fixed point.
bool stays_inside(const millrace_warp& warp) {
  std::array<double, 9> map;
  std::copy(std::begin(warp.map), std::end(warp.map), map.begin());
  if (!is_affine(map)) return false;
  const auto [width, height] = warp.output;
  const double rounding = (width + height + 1) * std::ldexp(1, -fraction_bits(warp.window));
  const Rect& w = warp.window;
  const auto is_inside = [&](int x, int y) {
    const Point at = mapped(map, {}, x, y);
    return at.x >= w.x0 + rounding && at.x <= w.x1 - rounding && at.y >= w.y0 + rounding &&
           at.y <= w.y1 - rounding;
  };
  return is_inside(0, 0) && is_inside(width - 1, 0) && is_inside(0, height - 1) &&
         is_inside(width - 1, height - 1);
}

}  // namespace

millrace_warp for_mask(const millrace_warp& warp, std::uint8_t fill) {
  millrace_warp nearest = warp;
  std::fill(std::begin(nearest.fill), std::end(nearest.fill), fill);
  if (warp.interpolation == MILLRACE_INDEX) return nearest;
  nearest.interpolation = MILLRACE_NEAREST;
  nearest.antialias = 0;
  // Unlike a clamped warp, one with a colour folds with its neighbours; resizing shows neither.
  if (warp.border == MILLRACE_CLAMP && stays_inside(warp)) nearest.border = MILLRACE_CONSTANT;
  return nearest;
}

}  // namespace millrace::augment
