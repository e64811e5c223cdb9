// A box on its way through the warps of a trail.
#pragma once

#include "pipeline/targets/homography.h"

namespace millrace::pipeline {

struct TrackedBox {
  double x0, y0, x1, y1;
  double visible = 1;  ///< part of its area that no warp has cut off

  double area() const { return (x1 - x0) * (y1 - y0); }
  /// Cuts off what lies outside of a rectangle.
  void clip(const Rect& rect);
  /// Follows a warp, whose forward_map() is `map`: the part inside its window becomes the smallest
  /// box around its four corners, cut at the output's edges, as torchvision.transforms.v2 has it.
  void follow(const millrace_warp& warp, const Homography& map);
};

}  // namespace millrace::pipeline
