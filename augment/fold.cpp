#include "augment/fold.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace millrace {
namespace {

/// x -> scale * x + offset on pixel indices; scale is 1 or -1.
struct AxisMove {
  int scale = 1;
  int offset = 0;
};

/// The new indices x whose move(x) lies in [low, high).
std::pair<int, int> pulled_back(int low, int high, const AxisMove& move) {
  if (move.scale > 0) return {low - move.offset, high - move.offset};
  return {move.offset - high + 1, move.offset - low + 1};
}

Rect pulled_back(const Rect& rect, const AxisMove& x, const AxisMove& y) {
  const auto [x0, x1] = pulled_back(rect.x0, rect.x1, x);
  const auto [y0, y1] = pulled_back(rect.y0, rect.y1, y);
  return {x0, y0, x1, y1};
}

bool contains(const Rect& outer, const Rect& inner) {
  return outer.x0 <= inner.x0 && outer.y0 <= inner.y0 && outer.x1 >= inner.x1 &&
         outer.y1 >= inner.y1;
}

/// A continuous map with linear part +-1 and whole offset, as a move of indices.
AxisMove to_move(double scale, double offset) {
  if (scale > 0) return {1, static_cast<int>(offset)};
  return {-1, static_cast<int>(offset) - 1};
}

Rect whole(Size size) { return {0, 0, size.width, size.height}; }

}  // namespace

FoldedPass::FoldedPass(const ImageView& image) {
  source = image;
  output = image.size();
}

bool FoldedPass::add(const Warp& warp) {
  // Bounds and moves stay below 2^18 with what one more op can add, so that fixed point has room.
  constexpr int kFar = 1 << 17;
  for (const Bound& bound : inner) {
    const Rect& r = bound.rect;
    if (std::max({-r.x0, -r.y0, r.x1, r.y1}) >= kFar) return false;
  }
  if (std::max(std::abs(move.x0), std::abs(move.y0)) >= kFar) return false;
  if (warp.filter == Filter::none) return add_move(warp);
  if (filter != Filter::none || inner.full()) return false;
  filter = warp.filter;
  map = warp.map;
  // A warp's frame has no edge of its own, so this bound counts even where it is the whole image.
  inner.push_front({warp.window, warp.fill});
  output = warp.output;
  return true;
}

bool FoldedPass::add_move(const Warp& warp) {
  const AxisMove x = to_move(warp.map[0], warp.map[2]);
  const AxisMove y = to_move(warp.map[4], warp.map[5]);
  Bounds& bounds = filter == Filter::none ? inner : outer;
  if (bounds.full()) return false;
  for (int i = 0; i < bounds.size(); ++i) bounds[i].rect = pulled_back(bounds[i].rect, x, y);
  const Rect window = pulled_back(warp.window, x, y);
  if (!contains(window, whole(warp.output))) bounds.push_front({window, warp.fill});
  if (filter == Filter::none) {
    source.data += x.offset * source.pixel + y.offset * source.row;
    source.pixel *= x.scale;
    source.row *= y.scale;
  } else {
    move.x0 += move.xx * x.offset;
    move.xx *= x.scale;
    move.y0 += move.yy * y.offset;
    move.yy *= y.scale;
  }
  output = warp.output;
  return true;
}

}  // namespace millrace
