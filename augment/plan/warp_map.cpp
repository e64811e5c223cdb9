// Multiplies and inverts homographies.
#include "augment/plan/warp_map.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace millrace::augment {
namespace {

using Matrix = std::array<double, 9>;

Matrix times(const Matrix& a, const Matrix& b) {
  Matrix c{};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      for (std::size_t k = 0; k < 3; ++k) c[i * 3 + j] += a[i * 3 + k] * b[k * 3 + j];
  return c;
}

/// Returns the inverse up to a factor, which homogeneous coordinates do not see.
Matrix adjugate(const Matrix& m) {
  return {m[4] * m[8] - m[5] * m[7], m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
          m[5] * m[6] - m[3] * m[8], m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
          m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]};
}

}  // namespace

void WarpMap::add(const millrace_warp& warp) {
  Matrix map;
  std::copy(std::begin(warp.map), std::end(warp.map), map.begin());
  map_ = times(map_, map);
}

std::array<float, 9> WarpMap::forward() const {
  constexpr Matrix kToCorner{1, 0, 0.5, 0, 1, 0.5, 0, 0, 1};
  constexpr Matrix kToCentre{1, 0, -0.5, 0, 1, -0.5, 0, 0, 1};
  const Matrix inverse = times(kToCentre, times(adjugate(map_), kToCorner));
  std::array<float, 9> result;
  const bool sound = exists_ && std::abs(inverse[8]) > 1e-12;
  for (std::size_t i = 0; i < 9; ++i)
    result[i] = sound ? static_cast<float>(inverse[i] / inverse[8])
                      : std::numeric_limits<float>::quiet_NaN();
  return result;
}

}  // namespace millrace::augment
