#include "augment/fold.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace millrace {
namespace {

/// The new indices x whose move(x) lies in [low, high).
std::pair<int, int> pulled_back(int low, int high, const IndexMove& move) {
  if (move.scale > 0) return {low - move.offset, high - move.offset};
  return {move.offset - high + 1, move.offset - low + 1};
}

Rect pulled_back(const Rect& rect, const IndexMove& x, const IndexMove& y) {
  const auto [x0, x1] = pulled_back(rect.x0, rect.x1, x);
  const auto [y0, y1] = pulled_back(rect.y0, rect.y1, y);
  return {x0, y0, x1, y1};
}

bool contains(const Rect& outer, const Rect& inner) {
  return outer.x0 <= inner.x0 && outer.y0 <= inner.y0 && outer.x1 >= inner.x1 &&
         outer.y1 >= inner.y1;
}

/// A continuous map with linear part +-1 and whole offset, as a move of indices.
IndexMove to_move(double scale, double offset) {
  if (scale > 0) return {1, static_cast<int>(offset)};
  return {-1, static_cast<int>(offset) - 1};
}

/// first this, then `next` seen from the other end: x -> before(next(x)).
IndexMove composed(const IndexMove& before, const IndexMove& next) {
  return {before.scale * next.scale, before.scale * next.offset + before.offset};
}

Fill fill_of(const Warp& warp) { return {warp.fill[0], warp.fill[1], warp.fill[2], warp.fill[3]}; }

Rect whole(Size size) { return {0, 0, size.width, size.height}; }

}  // namespace

void Bounds::push_front(const Bound& bound) {
  for (int i = size_; i > 0; --i) (*this)[i] = (*this)[i - 1];
  (*this)[0] = bound;
  ++size_;
}

Pass::Pass(const ImageView& image) : source(image), output(image.size()) {}

bool Pass::add(const Warp& warp) {
  // Bounds and moves stay below 2^18 with what one more op can add, so that fixed point has room.
  constexpr int kFar = 1 << 17;
  for (const Bound& bound : inner) {
    const Rect& r = bound.rect;
    if (std::max({-r.x0, -r.y0, r.x1, r.y1}) >= kFar) return false;
  }
  if (std::max(std::abs(move_x.offset), std::abs(move_y.offset)) >= kFar) return false;
  if (warp.interpolation == MILLRACE_INDEX) return add_move(warp);
  if (filter != Filter::none || inner.full()) return false;
  filter = warp.interpolation == MILLRACE_NEAREST ? Filter::nearest : Filter::bilinear;
  for (std::size_t i = 0; i < map.size(); ++i) map[i] = warp.map[i];
  // A warp's frame has no edge of its own, so this bound counts even where it is the whole image.
  inner.push_front({warp.window, fill_of(warp)});
  output = warp.output;
  return true;
}

bool Pass::add_move(const Warp& warp) {
  const IndexMove x = to_move(warp.map[0], warp.map[2]);
  const IndexMove y = to_move(warp.map[4], warp.map[5]);
  Bounds& bounds = filter == Filter::none ? inner : outer;
  if (bounds.full()) return false;
  for (int i = 0; i < bounds.size(); ++i) bounds[i].rect = pulled_back(bounds[i].rect, x, y);
  const Rect window = pulled_back(warp.window, x, y);
  if (!contains(window, whole(warp.output))) bounds.push_front({window, fill_of(warp)});
  if (filter == Filter::none) {
    source.data += x.offset * source.pixel + y.offset * source.row;
    source.pixel *= x.scale;
    source.row *= y.scale;
  } else {
    move_x = composed(move_x, x);
    move_y = composed(move_y, y);
  }
  output = warp.output;
  return true;
}

}  // namespace millrace
