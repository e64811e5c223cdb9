// Moves and cuts boxes.
#include "pipeline/targets/tracked_box.h"

#include <algorithm>

namespace millrace::pipeline {

void TrackedBox::clip(const Rect& rect) {
  const double before = area();
  x0 = std::clamp<double>(x0, rect.x0, rect.x1);
  y0 = std::clamp<double>(y0, rect.y0, rect.y1);
  x1 = std::clamp<double>(x1, rect.x0, rect.x1);
  y1 = std::clamp<double>(y1, rect.y0, rect.y1);
  visible = before > 0 ? visible * area() / before : 0;
}

void TrackedBox::follow(const millrace_warp& warp, const Homography& map) {
  clip(warp.window);
  const Point corners[] = {moved(map, {x0, y0}), moved(map, {x1, y0}), moved(map, {x0, y1}),
                           moved(map, {x1, y1})};
  x0 = x1 = corners[0].x;
  y0 = y1 = corners[0].y;
  for (const Point& corner : corners) {
    x0 = std::min(x0, corner.x);
    y0 = std::min(y0, corner.y);
    x1 = std::max(x1, corner.x);
    y1 = std::max(y1, corner.y);
  }
  clip({0, 0, warp.output.width, warp.output.height});
}

}  // namespace millrace::pipeline
