// Positions and taps of the scalar warp kernels.
#pragma once

#include <algorithm>

#include "augment/kernels/kernels.h"

namespace millrace::augment {

/// The positions along one output row.
class RowPositions {
 public:
  RowPositions(const WarpBlock& warp, int y)
      : warp_(warp),
        u_(warp.u_0 + warp.u_y * static_cast<std::uint32_t>(y)),
        v_(warp.v_0 + warp.v_y * static_cast<std::uint32_t>(y)) {}
  std::int32_t u(int x) const {
    if (warp_.u != nullptr) return warp_.u[x];
    return static_cast<std::int32_t>(u_ + warp_.u_x * static_cast<std::uint32_t>(x));
  }
  std::int32_t v(int x) const {
    if (warp_.v != nullptr) return warp_.v[x];
    return static_cast<std::int32_t>(v_ + warp_.v_x * static_cast<std::uint32_t>(x));
  }

 private:
  const WarpBlock& warp_;
  std::uint32_t u_, v_;
};

/// Returns the level at pixel (i, j) of the source frame: the source's pixel, or the fill of the
/// first bound that it leaves.
inline const std::uint8_t* tap(const WarpBlock& warp, int i, int j, std::ptrdiff_t& channel) {
  channel = warp.channel;
  if (warp.clamp) {
    i = std::clamp(i, warp.inside.x0, warp.inside.x1 - 1);
    j = std::clamp(j, warp.inside.y0, warp.inside.y1 - 1);
  } else {
    for (const Bound& bound : *warp.bounds) {
      const Rect& r = bound.rect;
      if (i >= r.x0 && i < r.x1 && j >= r.y0 && j < r.y1) continue;
      channel = 1;
      return bound.fill.data();
    }
  }
  return warp.source + static_cast<std::ptrdiff_t>(j) * warp.row +
         static_cast<std::ptrdiff_t>(i) * warp.pixel;
}

}  // namespace millrace::augment
