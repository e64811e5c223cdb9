// Random passes of every kind (shapes, strides, bounds and maps), for tests that compare two ways
// of running them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "augment/ops/geometry.h"
#include "augment/plan/resample.h"
#include "base/rng.h"
#include "millrace/buffer.h"

namespace millrace::augment {

/// Returns pixels with kTailSlack bytes behind them and nothing in front, so that AddressSanitizer
/// sees reads outside.
inline std::vector<std::uint8_t> random_pixels(std::size_t bytes, Draw& draw) {
  std::vector<std::uint8_t> pixels(bytes + kTailSlack);
  for (std::size_t i = 0; i < bytes; ++i) pixels[i] = static_cast<std::uint8_t>(draw.bits());
  return pixels;
}

struct RandomPass {
  std::vector<std::uint8_t> pixels;
  Pass pass;
  Rect all;  ///< the source's pixels, in the pass's source frame
};

namespace random_pass_detail {

inline int between(Draw& draw, int low, int high) {  // both ends included
  return low + static_cast<int>(draw.integer(static_cast<std::uint32_t>(high - low + 1)));
}

inline Fill random_fill(Draw& draw) {
  const auto level = [&] { return static_cast<std::uint8_t>(draw.bits()); };
  if (draw.chance(0.5)) {
    const std::uint8_t gray = level();
    return {gray, gray, gray, gray};
  }
  return {level(), level(), level(), 0};
}

/// Returns a rectangle that may reach beyond (0, 0, w, h).
inline Rect random_rect(Draw& draw, const Rect& around, int slack) {
  const int x0 = between(draw, around.x0 - slack, around.x1);
  const int y0 = between(draw, around.y0 - slack, around.y1);
  return {x0, y0, between(draw, x0, around.x1 + slack), between(draw, y0, around.y1 + slack)};
}

/// Fills `pixels` and returns a view of them: interleaved, planar, padded rows, mirrored, turned,
/// BGR.
inline ImageView random_source(Draw& draw, std::vector<std::uint8_t>& pixels) {
  const int channels = draw.chance(0.6) ? 3 : 1;
  const bool tiny = draw.chance(0.4);
  const Size size{between(draw, 1, tiny ? 34 : 150), between(draw, 1, tiny ? 34 : 80)};
  const bool planes = draw.chance(0.4);
  const int gap = draw.chance(0.3) ? between(draw, 1, 9) : 0;
  ImageView view;
  view.width = size.width;
  view.height = size.height;
  view.channels = channels;
  view.pixel = planes ? 1 : channels;
  view.row = size.width * view.pixel + gap;
  view.channel = planes ? view.row * size.height : 1;
  pixels = random_pixels(static_cast<std::size_t>(view.row * size.height) *
                                 (planes ? static_cast<std::size_t>(channels) : 1) -
                             static_cast<std::size_t>(gap),
                         draw);
  view.data = pixels.data();
  if (draw.chance(0.3)) {
    view.data = view.at(view.width - 1, 0);
    view.pixel = -view.pixel;
  }
  if (draw.chance(0.2)) {
    view.data = view.at(0, view.height - 1);
    view.row = -view.row;
  }
  if (draw.chance(0.1)) {
    std::swap(view.width, view.height);
    std::swap(view.pixel, view.row);
  }
  if (channels == 3 && draw.chance(0.1)) {
    view.data = view.at(0, 0, 2);
    view.channel = -view.channel;
  }
  return view;
}

inline IndexMove random_move(Draw& draw, Size from, Size to) {
  IndexMove move;
  const auto sign = [&] { return draw.chance(0.5) ? 1 : -1; };
  const auto offset = [&](int scale, int n, int m) {
    return (scale > 0 ? 0 : n - 1) + between(draw, -2, 2) + (n > m ? between(draw, 0, n - m) : 0);
  };
  if (draw.chance(0.8)) {
    move.xx = sign();
    move.yy = sign();
    move.x0 = offset(move.xx, from.width, to.width);
    move.y0 = offset(move.yy, from.height, to.height);
  } else {
    move.xx = move.yy = 0;
    move.xy = sign();
    move.yx = sign();
    move.x0 = offset(move.xy, from.width, to.height);
    move.y0 = offset(move.yx, from.height, to.width);
  }
  return move;
}

/// Returns a map from a frame of about `from` to one of about `to`.
inline std::array<double, 9> random_map(Draw& draw, const Rect& to, Size from) {
  const double cx = draw.uniform(to.x0, to.x1), cy = draw.uniform(to.y0, to.y1);
  const double scale = draw.chance(0.1) ? draw.uniform(0.01, 0.1) : draw.uniform(0.3, 3);
  const AffineParameters p{draw.chance(0.2) ? 90.0 * between(draw, 0, 3) : draw.uniform(-180, 180),
                           0,
                           0,
                           scale,
                           draw.uniform(-20, 20),
                           draw.uniform(-20, 20)};
  const auto m = inverse_affine(p, 0, 0);
  const double fx = from.width * 0.5, fy = from.height * 0.5;
  std::array<double, 9> map{
      m[0], m[1], cx - m[0] * fx - m[1] * fy, m[3], m[4], cy - m[3] * fx - m[4] * fy, 0, 0, 1};
  if (draw.chance(0.3)) {  // also with a horizon in the picture
    map[6] = draw.uniform(-1, 1) / (from.width * draw.uniform(1, 10));
    map[7] = draw.uniform(-1, 1) / (from.height * draw.uniform(1, 10));
  }
  return map;
}

}  // namespace random_pass_detail

/// Returns the pass of this number; the same on every machine.
inline RandomPass random_pass(std::uint64_t number, Filter filter) {
  using namespace random_pass_detail;
  Draw draw(
      base::stream({2024, static_cast<std::uint32_t>(filter), number}, base::op_id("random_pass")));
  RandomPass result;
  Pass& pass = result.pass;
  pass.filter = filter;
  const ImageView view = random_source(draw, result.pixels);
  // The frame's origin may lie anywhere; the existing part of the source is a bound.
  const int dx = draw.chance(0.5) ? 0 : between(draw, -9, 9);
  const int dy = draw.chance(0.5) ? 0 : between(draw, -9, 9);
  pass.source = view;
  pass.source.data = view.data - dx * view.pixel - dy * view.row;
  const Rect all = result.all = {dx, dy, dx + view.width, dy + view.height};
  const Size size{between(draw, 1, draw.chance(0.5) ? 34 : 200), between(draw, 1, 50)};
  pass.output = size;
  const Rect whole{0, 0, size.width, size.height};
  pass.inner.push_back({all, random_fill(draw)});
  if (filter == Filter::none) {
    while (draw.chance(0.3))
      pass.inner.push_front({random_rect(draw, whole, 5), random_fill(draw)});
    return result;
  }
  while (draw.chance(0.3)) pass.outer.push_front({random_rect(draw, whole, 5), random_fill(draw)});
  const Size between_size{between(draw, 1, 60), between(draw, 1, 60)};
  pass.move = random_move(draw, between_size, size);
  while (draw.chance(0.2) && !pass.middle.full())
    pass.middle.push_back({random_map(draw, {0, 0, 40, 40}, between_size),
                           {random_rect(draw, {0, 0, 40, 40}, 5), random_fill(draw)}});
  if (filter == Filter::reduce) {
    Rect window = all;
    if (draw.chance(0.7)) {
      window.x0 = between(draw, all.x0, all.x1 - 1);
      window.x1 = between(draw, window.x0 + 1, all.x1);
      window.y0 = between(draw, all.y0, all.y1 - 1);
      window.y1 = between(draw, window.y0 + 1, all.y1);
    }
    pass.inner[0].rect = window;
    const double edge = draw.chance(0.5) ? 0 : draw.uniform(-1.5, 1.5);
    const double sx =
        draw.chance(0.2) ? draw.uniform(0.1, 12) : (window.x1 - window.x0 + edge) / size.width;
    const double sy =
        draw.chance(0.2) ? draw.uniform(0.1, 12) : (window.y1 - window.y0 + edge) / size.height;
    pass.map = {std::max(sx, 0.01),
                0,
                window.x0 - edge / 3,
                0,
                std::max(sy, 0.01),
                window.y0 - edge / 2,
                0,
                0,
                1};
    return result;
  }
  pass.map = random_map(draw, all, between_size);
  if (draw.chance(0.25)) {
    pass.border = Border::clamp;
  } else {
    while (draw.chance(0.25)) pass.inner.push_front({random_rect(draw, all, 5), random_fill(draw)});
  }
  return result;
}

}  // namespace millrace::augment
