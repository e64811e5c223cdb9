// Homographies of the plane: the maps of warps, and where those of a trail lead a position.
#pragma once

#include <array>

#include "millrace/transform.h"

namespace millrace::pipeline {

/// A 3 x 3 matrix, row by row, that maps positions in homogeneous coordinates.
using Homography = std::array<double, 9>;

struct Point {
  double x, y;
};

inline bool is_inside(Point at, const Rect& rect) {
  return at.x >= rect.x0 && at.x < rect.x1 && at.y >= rect.y0 && at.y < rect.y1;
}

/// Returns the map that applies `b` first, then `a`.
Homography product(const Homography& a, const Homography& b);
/// Returns the inverse up to a factor, which positions do not see.
Homography inverse(const Homography& map);
Point moved(const Homography& map, Point point);

/// Returns the map from output to input of a warp, on continuous positions.
Homography backward_map(const millrace_warp& warp);
/// Returns the map from input to output of a warp, on continuous positions.
Homography forward_map(const millrace_warp& warp);
/// Returns W with x_out = W x_in over all warps of a trail, at pixel centres: (0, 0) is the centre
/// of the first pixel. All NaN if no such map exists.
std::array<float, 9> centre_map(const Trail& trail);

}  // namespace millrace::pipeline
