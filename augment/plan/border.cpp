#include "augment/plan/border.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "augment/plan/fold.h"

namespace millrace::augment {
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
  const auto value = static_cast<std::size_t>(bytes_of(from.depth));
  for (int y = 0; y < warp.output.height; ++y)
    for (int x = 0; x < warp.output.width; ++x) {
      const int i = inside(m.xx * x + m.xy * y + m.x0, w.x0, w.x1, warp.border);
      const int j = inside(m.yx * x + m.yy * y + m.y0, w.y0, w.y1, warp.border);
      const std::uint8_t* pixel = from.at(i, j);
      for (int c = 0; c < from.channels; ++c, to += value)
        std::memcpy(to, pixel + c * from.channel, value);
    }
}

bool shows_no_fill(const millrace_warp& warp) {
  if (warp.interpolation != MILLRACE_INDEX || warp.border != MILLRACE_CONSTANT) return false;
  const Rect seen = pulled_back(warp.window, to_move(warp));
  return seen.x0 <= 0 && seen.y0 <= 0 && seen.x1 >= warp.output.width &&
         seen.y1 >= warp.output.height;
}

}  // namespace millrace::augment
