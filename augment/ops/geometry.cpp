// Affine maps that several ops share.
#include "augment/ops/geometry.h"

#include <algorithm>
#include <cmath>

#include "augment/plan/fold.h"

namespace millrace::augment {

std::string to_text(Size size) {
  return std::to_string(size.width) + "x" + std::to_string(size.height);
}

Size to_size(const Numbers& numbers) {
  return {static_cast<int>(numbers.back()), static_cast<int>(numbers.front())};
}

Sides to_sides(const Numbers& numbers) {
  const auto side = [&](std::size_t i) { return static_cast<int>(numbers[i % numbers.size()]); };
  return {side(0), side(1), side(2), side(3)};
}

Warp cropped(Size input, int x, int y, Size size, const std::uint8_t (&fill)[4]) {
  Warp warp = Warp::identity(input);
  warp.output = size;
  warp.set_map(1, 0, x, 0, 1, y);
  std::copy(fill, fill + 4, warp.fill);
  return warp;
}

Warp resized(Size input, double x, double y, double width, double height, Size output,
             Interpolation interpolation, bool antialias) {
  Warp warp = Warp::identity(input);
  warp.output = output;
  warp.set_map(width / output.width, 0, x, 0, height / output.height, y);
  // torchvision crops before it resizes, so taps see nothing outside the box.
  warp.window = {static_cast<int>(std::floor(x)), static_cast<int>(std::floor(y)),
                 static_cast<int>(std::ceil(x + width)), static_cast<int>(std::ceil(y + height))};
  warp.set_interpolation(interpolation);
  warp.set_border(Border::clamp);
  warp.antialias = antialias && interpolation == Interpolation::bilinear;
  return warp;
}

// Declares and reads the `border` parameter of geometric ops.
namespace {

/// Returns the index in [low, high) that index `i` shows.
int inside(int i, int low, int high, int border) {
  const int length = high - low;
  i -= low;
  if (border == MILLRACE_CLAMP) return low + std::clamp(i, 0, length - 1);
  // Reflect repeats ... 2 1 [0 1 2] 1 0 ..., symmetric repeats ... 1 0 [0 1 2] 2 1 ...
  const int period = border == MILLRACE_REFLECT ? std::max(1, 2 * length - 2) : 2 * length;
  i = (i % period + period) % period;
  if (i >= length) i = border == MILLRACE_REFLECT ? period - i : period - 1 - i;
  return low + i;
}

}  // namespace

void copy_with_border(const ImageView& from, const millrace_warp& warp, std::uint8_t* to) {
  const IndexMove m = to_move(warp);
  const Rect& w = warp.window;
  for (int y = 0; y < warp.output.height; ++y)
    for (int x = 0; x < warp.output.width; ++x) {
      const int i = inside(m.xx * x + m.xy * y + m.x0, w.x0, w.x1, warp.border);
      const int j = inside(m.yx * x + m.yy * y + m.y0, w.y0, w.y1, warp.border);
      const std::uint8_t* pixel = from.at(i, j);
      for (int c = 0; c < from.channels; ++c) *to++ = pixel[c * from.channel];
    }
}

bool shows_no_fill(const millrace_warp& warp) {
  if (warp.interpolation != MILLRACE_INDEX || warp.border != MILLRACE_CONSTANT) return false;
  const Rect seen = pulled_back(warp.window, to_move(warp));
  return seen.x0 <= 0 && seen.y0 <= 0 && seen.x1 >= warp.output.width &&
         seen.y1 >= warp.output.height;
}

}  // namespace millrace::augment
