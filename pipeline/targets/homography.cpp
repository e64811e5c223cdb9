// Multiplies, inverts and applies homographies.
#include "pipeline/targets/homography.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

namespace millrace::pipeline {

Homography product(const Homography& a, const Homography& b) {
  Homography c{};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      for (std::size_t k = 0; k < 3; ++k) c[i * 3 + j] += a[i * 3 + k] * b[k * 3 + j];
  return c;
}

Homography inverse(const Homography& m) {  // the adjugate
  return {m[4] * m[8] - m[5] * m[7], m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
          m[5] * m[6] - m[3] * m[8], m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
          m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]};
}

Point moved(const Homography& m, Point p) {
  const double w = m[6] * p.x + m[7] * p.y + m[8];
  return {(m[0] * p.x + m[1] * p.y + m[2]) / w, (m[3] * p.x + m[4] * p.y + m[5]) / w};
}

Homography backward_map(const millrace_warp& warp) {
  Homography map;
  std::copy(std::begin(warp.map), std::end(warp.map), map.begin());
  return map;
}

Homography forward_map(const millrace_warp& warp) { return inverse(backward_map(warp)); }

std::array<float, 9> centre_map(const Trail& trail) {
  constexpr Homography kToCorner{1, 0, 0.5, 0, 1, 0.5, 0, 0, 1};
  constexpr Homography kToCentre{1, 0, -0.5, 0, 1, -0.5, 0, 0, 1};
  Homography back{1, 0, 0, 0, 1, 0, 0, 0, 1};
  for (const millrace_warp& warp : trail.warps) back = product(back, backward_map(warp));
  const Homography map = product(kToCentre, product(inverse(back), kToCorner));
  std::array<float, 9> result;
  const bool sound = !trail.lost && std::abs(map[8]) > 1e-12;
  for (std::size_t i = 0; i < 9; ++i)
    result[i] =
        sound ? static_cast<float>(map[i] / map[8]) : std::numeric_limits<float>::quiet_NaN();
  return result;
}

}  // namespace millrace::pipeline
