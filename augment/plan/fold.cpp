// Folds neighbouring ops of a chain into as few passes as possible.
#include "augment/plan/fold.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "augment/kernels/pass.h"
#include "pipeline/targets/homography.h"

namespace millrace::augment {
namespace {

using pipeline::Homography;
using pipeline::product;

Rect whole(Size size) { return {0, 0, size.width, size.height}; }

bool contains(const Rect& outer, const Rect& inner) {
  return outer.x0 <= inner.x0 && outer.y0 <= inner.y0 && outer.x1 >= inner.x1 &&
         outer.y1 >= inner.y1;
}

Rect intersection(const Rect& a, const Rect& b) {
  Rect both{std::max(a.x0, b.x0), std::max(a.y0, b.y0), std::min(a.x1, b.x1), std::min(a.y1, b.y1)};
  both.x1 = std::max(both.x0, both.x1);
  both.y1 = std::max(both.y0, both.y1);
  return both;
}

Fill fill_of(const millrace_warp& warp) {
  return {warp.fill[0], warp.fill[1], warp.fill[2], warp.fill[3]};
}

/// Limit for bounds and moves that can be folded: far from overflowing any kernel's fixed point,
/// even after one more op.
constexpr int kFar = 1 << 17;
bool is_far(const Rect& r) { return std::max({-r.x0, -r.y0, r.x1, r.y1}) >= kFar; }
bool is_far(const IndexMove& move) {
  return std::max(std::abs(move.x0), std::abs(move.y0)) >= kFar;
}

/// Returns the move on continuous coordinates, where pixel i covers [i, i + 1).
Homography to_map(const IndexMove& m) {
  return {static_cast<double>(m.xx),
          static_cast<double>(m.xy),
          m.x0 + (m.xx + m.xy < 0 ? 1.0 : 0.0),
          static_cast<double>(m.yx),
          static_cast<double>(m.yy),
          m.y0 + (m.yx + m.yy < 0 ? 1.0 : 0.0),
          0,
          0,
          1};
}

bool is_reduction(const millrace_warp& w) {
  return w.interpolation == MILLRACE_BILINEAR && w.antialias != 0 && w.border == MILLRACE_CLAMP &&
         w.map[1] == 0 && w.map[3] == 0 && w.map[6] == 0 && w.map[7] == 0 && w.map[8] == 1 &&
         w.map[0] > 0 && w.map[4] > 0;
}

/// Returns [floor(low), ceil(high)) as int.
std::pair<int, int> covering(double low, double high) {
  const double most = 1 << 20;
  return {static_cast<int>(std::floor(std::clamp(low, -most, most))),
          static_cast<int>(std::ceil(std::clamp(high, -most, most)))};
}

}  // namespace

IndexMove composed(const IndexMove& first, const IndexMove& next) {
  return {first.xx * next.xx + first.xy * next.yx,
          first.xx * next.xy + first.xy * next.yy,
          first.xx * next.x0 + first.xy * next.y0 + first.x0,
          first.yx * next.xx + first.yy * next.yx,
          first.yx * next.xy + first.yy * next.yy,
          first.yx * next.x0 + first.yy * next.y0 + first.y0};
}

Rect moved(const Rect& rect, const IndexMove& m) {
  const auto range = [](int sx, int x0, int x1, int sy, int y0, int y1, int offset) {
    const bool on_x = sx != 0;
    const int scale = on_x ? sx : sy;
    const int low = on_x ? x0 : y0;
    const int high = (on_x ? x1 : y1) - 1;
    const int a = scale * low + offset;
    const int b = scale * high + offset;
    return std::pair(std::min(a, b), std::max(a, b) + 1);
  };
  const auto [x0, x1] = range(m.xx, rect.x0, rect.x1, m.xy, rect.y0, rect.y1, m.x0);
  const auto [y0, y1] = range(m.yx, rect.x0, rect.x1, m.yy, rect.y0, rect.y1, m.y0);
  return {x0, y0, x1, y1};
}

Rect pulled_back(const Rect& rect, const IndexMove& m) {
  // The inverse of a signed permutation is its transpose.
  const IndexMove inverse{m.xx, m.yx, -(m.xx * m.x0 + m.yx * m.y0),
                          m.xy, m.yy, -(m.xy * m.x0 + m.yy * m.y0)};
  return moved(rect, inverse);
}

ImageView viewed(const ImageView& image, const IndexMove& m, Size size) {
  ImageView view = image;
  view.data += m.x0 * image.pixel + m.y0 * image.row;
  view.pixel = m.xx * image.pixel + m.yx * image.row;
  view.row = m.xy * image.pixel + m.yy * image.row;
  view.width = size.width;
  view.height = size.height;
  return view;
}

IndexMove to_move(const millrace_warp& warp) {
  const double* m = warp.map;
  const auto is_axis = [](double a, double b) {
    return (a == 0 && std::abs(b) == 1) || (b == 0 && std::abs(a) == 1);
  };
  const bool permutes = is_axis(m[0], m[1]) && is_axis(m[3], m[4]) && (m[0] == 0) == (m[4] == 0);
  const bool whole_offsets = m[2] == std::floor(m[2]) && m[5] == std::floor(m[5]) &&
                             std::abs(m[2]) < 1e6 && std::abs(m[5]) < 1e6;
  if (!permutes || !whole_offsets || m[6] != 0 || m[7] != 0 || m[8] != 1)
    throw BadUse("the map does not move whole pixels",
                 "set an interpolation, or a signed permutation with whole offsets");
  const auto whole_number = [](double value) { return static_cast<int>(value); };
  IndexMove move{whole_number(m[0]), whole_number(m[1]), whole_number(m[2]),
                 whole_number(m[3]), whole_number(m[4]), whole_number(m[5])};
  if (move.xx + move.xy < 0) --move.x0;
  if (move.yx + move.yy < 0) --move.y0;
  return move;
}

Fold::Fold(Size source) : source_(source) { pass_.output = source; }

bool Fold::add(const millrace_warp& warp, bool compose) {
  for (const Bound& bound : pass_.inner)
    if (is_far(bound.rect)) return false;
  for (const Bound& bound : pass_.outer)
    if (is_far(bound.rect)) return false;
  if (is_far(pass_.move) || is_far(before_)) return false;
  const bool added = warp.interpolation == MILLRACE_INDEX
                         ? warp.border == MILLRACE_CONSTANT &&
                               add_move(to_move(warp), warp.window, fill_of(warp), warp.output)
                     : is_reduction(warp) ? add_reduction(warp)
                                          : add_warp(warp, compose);
  if (added) is_empty_ = false;
  return added;
}

bool Fold::add_move(const IndexMove& move, const Rect& window, const Fill& fill, Size output) {
  const bool first = pass_.filter == Filter::none;
  Bounds& bounds = first ? pass_.inner : pass_.outer;
  if (bounds.full()) return false;
  for (Bound& bound : bounds) bound.rect = pulled_back(bound.rect, move);
  const Rect seen = pulled_back(window, move);
  if (!contains(seen, whole(output))) bounds.push_front({seen, fill});
  if (first) {
    before_ = composed(before_, move);
  } else {
    pass_.move = composed(pass_.move, move);
  }
  pass_.output = output;
  return true;
}

bool Fold::add_reduction(const millrace_warp& warp) {
  Rect clip = warp.window;
  Homography map = pipeline::backward_map(warp);
  if (pass_.filter == Filter::reduce) {
    // Two reductions in a row: multiply their maps and keep taps inside both windows.
    const IndexMove& m = pass_.move;
    if (!pass_.outer.empty() || m.xx != 1 || m.yy != 1) return false;
    const Homography between = product(pass_.map, to_map(m));
    const auto [x0, x1] =
        covering(between[0] * clip.x0 + between[2], between[0] * clip.x1 + between[2]);
    const auto [y0, y1] =
        covering(between[4] * clip.y0 + between[5], between[4] * clip.y1 + between[5]);
    clip = intersection({x0, y0, x1, y1}, pass_.inner[0].rect);
    map = product(between, map);
    pass_.inner.clear();
    pass_.move = {};
  } else if (pass_.filter != Filter::none || !pass_.inner.empty()) {
    return false;
  }
  pass_.filter = Filter::reduce;
  pass_.border = Border::clamp;
  pass_.map = map;
  pass_.inner.push_back({clip, {}});
  pass_.output = warp.output;
  return true;
}

bool Fold::add_warp(const millrace_warp& warp, bool compose) {
  const Filter filter = warp.interpolation == MILLRACE_NEAREST ? Filter::nearest : Filter::bilinear;
  const bool clamps = warp.border == MILLRACE_CLAMP;
  const Bound window{warp.window, fill_of(warp)};
  if (pass_.filter == Filter::none) {
    if (clamps ? !pass_.inner.empty() : pass_.inner.full()) return false;
    pass_.filter = filter;
    pass_.border = clamps ? Border::clamp : Border::constant;
    pass_.map = pipeline::backward_map(warp);
    // A warp's frame has no edge of its own, so this bound counts even if it is the whole image.
    pass_.inner.push_front(window);
    pass_.output = warp.output;
    return true;
  }
  // A second interpolating warp: multiply the maps and keep every window in between.
  if (!compose || pass_.filter != filter || clamps) return false;
  InlineVector<MappedBound, 4> middle;
  const Homography own = pipeline::backward_map(warp);
  if (1 + pass_.outer.size() + pass_.middle.size() > middle.kCapacity) return false;
  const Homography to_warp = product(to_map(pass_.move), own);
  middle.push_back({own, window});
  for (const Bound& bound : pass_.outer) middle.push_back({own, bound});
  for (const MappedBound& bound : pass_.middle)
    middle.push_back({product(bound.map, to_warp), bound.bound});
  pass_.middle = middle;
  pass_.outer.clear();
  pass_.map = product(pass_.map, to_warp);
  pass_.move = {};
  pass_.output = warp.output;
  return true;
}

Rect Fold::region() const {
  const Rect frame = whole(source_);
  const Size out = pass_.output;
  Rect in_output = whole(out);
  for (const Bound& bound : pass_.outer) in_output = intersection(in_output, bound.rect);
  Rect read = in_output;
  if (pass_.filter != Filter::none && in_output.x1 > in_output.x0 && in_output.y1 > in_output.y0) {
    const Rect r = moved(in_output, pass_.move);
    const Homography& m = pass_.map;
    double low[2] = {1e9, 1e9};
    double high[2] = {-1e9, -1e9};
    bool bounded = true;
    // A projective map takes the convex hull of the corners to that of their images, unless the
    // horizon passes between them.
    for (const double x : {r.x0 + 0.5, r.x1 - 0.5})
      for (const double y : {r.y0 + 0.5, r.y1 - 0.5}) {
        const double w = m[6] * x + m[7] * y + m[8];
        if (!(w > 1e-9)) bounded = false;
        const double at[2] = {(m[0] * x + m[1] * y + m[2]) / w, (m[3] * x + m[4] * y + m[5]) / w};
        for (int axis = 0; axis < 2; ++axis) {
          low[axis] = std::min(low[axis], at[axis]);
          high[axis] = std::max(high[axis], at[axis]);
        }
      }
    // Taps reach two pixels per axis, or the reduction's triangle, and a little more for rounding:
    // a warp's coefficients are rounded to fixed point, which matters more the farther out a pixel
    // lies.
    const bool reduces = pass_.filter == Filter::reduce;
    double rounding = 0.01;
    if (!reduces)
      rounding += (std::max(std::abs(r.x0), std::abs(r.x1)) +
                   std::max(std::abs(r.y0), std::abs(r.y1)) + 1) *
                  std::ldexp(0.5, -fraction_bits(pass_.inner));
    const double reach_x = (reduces ? std::max(1.0, m[0]) : 1.0) + rounding;
    const double reach_y = (reduces ? std::max(1.0, m[4]) : 1.0) + rounding;
    const auto [x0, x1] = covering(low[0] - reach_x, high[0] + reach_x);
    const auto [y0, y1] = covering(low[1] - reach_y, high[1] + reach_y);
    read = bounded ? Rect{x0, y0, x1, y1} : Rect{-(1 << 20), -(1 << 20), 1 << 20, 1 << 20};
    if (pass_.border == Border::clamp && !pass_.inner.empty()) {
      // Positions outside show the window's edge, so the edge is read even if nothing else is.
      const Rect w = pass_.inner[0].rect;
      read = {std::clamp(read.x0, w.x0, w.x1 - 1), std::clamp(read.y0, w.y0, w.y1 - 1),
              std::clamp(read.x1, w.x0 + 1, w.x1), std::clamp(read.y1, w.y0 + 1, w.y1)};
    }
  }
  for (const Bound& bound : pass_.inner) read = intersection(read, bound.rect);
  read = intersection(read, pulled_back(frame, before_));
  if (read.x1 <= read.x0 || read.y1 <= read.y0) return {0, 0, 1, 1};  // everything is fill
  return intersection(moved(read, before_), frame);
}

int Fold::max_scale() const {
  if (pass_.filter != Filter::reduce || before_.xy != 0) return 0;
  const double shrink = std::min(pass_.map[0], pass_.map[4]);
  int scale = 0;
  while (scale < 3 && shrink >= 2 << scale) ++scale;
  return scale;
}

void Fold::shrink_source(int scale) {
  if (scale == 0) return;
  // Only crops and flips can precede the reduction. Move them into its map, because a crop's window
  // need not fall on whole pixels of the smaller image.
  const double part = 1.0 / (1 << scale);
  const Homography to_source = product(to_map(before_), pass_.map);
  const Rect window = moved(pass_.inner[0].rect, before_);
  const Size small{(source_.width + (1 << scale) - 1) >> scale,
                   (source_.height + (1 << scale) - 1) >> scale};
  const auto [x0, x1] = covering(window.x0 * part, window.x1 * part);
  const auto [y0, y1] = covering(window.y0 * part, window.y1 * part);
  const Rect clip = intersection({x0, y0, x1, y1}, whole(small));
  // Apply a flip after the smaller image's own: the frame stays mirrored.
  before_ = {before_.xx, 0,          before_.xx < 0 ? small.width - 1 : 0,
             0,          before_.yy, before_.yy < 0 ? small.height - 1 : 0};
  const Homography mirror = to_map(before_);  // its own inverse
  const Homography smaller{part, 0, 0, 0, part, 0, 0, 0, 1};
  pass_.map = product(mirror, product(smaller, to_source));
  pass_.inner[0].rect = pulled_back(clip, before_);
  source_ = small;
}

Pass Fold::pass(const ImageView& source, const Rect& held) const {
  Pass pass = pass_;
  pass.held = pulled_back(held, before_);
  pass.source =
      viewed(source, before_, before_.xx != 0 ? source.size() : Size{source.height, source.width});
  return pass;
}

}  // namespace millrace::augment
