// random_perspective: moves the four corners inwards, each by a random amount (torchvision's
// RandomPerspective).
#include "augment/ops/random_perspective.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "augment/ops/builtin.h"

namespace millrace::augment {

std::array<double, 9> perspective_map(const Corners& from, const Corners& to) {
  // Maps `to` to `from`: u (g x + h y + 1) = a x + b y + c, and v alike; eight equations with eight
  // unknowns.
  double m[8][9] = {};
  for (int i = 0; i < 4; ++i) {
    const auto [x, y] = to[static_cast<std::size_t>(i)];
    const auto [u, v] = from[static_cast<std::size_t>(i)];
    const double row_u[9] = {x, y, 1, 0, 0, 0, -u * x, -u * y, u};
    const double row_v[9] = {0, 0, 0, x, y, 1, -v * x, -v * y, v};
    std::copy(row_u, row_u + 9, m[2 * i]);
    std::copy(row_v, row_v + 9, m[2 * i + 1]);
  }
  for (int column = 0; column < 8; ++column) {  // Gauss-Jordan elimination with pivots
    int pivot = column;
    for (int row = column; row < 8; ++row)
      if (std::abs(m[row][column]) > std::abs(m[pivot][column])) pivot = row;
    // Corners on one line.
    if (std::abs(m[pivot][column]) < 1e-12) return {1, 0, 0, 0, 1, 0, 0, 0, 1};
    std::swap_ranges(m[pivot], m[pivot] + 9, m[column]);
    for (int row = 0; row < 8; ++row) {
      if (row == column) continue;
      const double factor = m[row][column] / m[column][column];
      for (int k = column; k < 9; ++k) m[row][k] -= factor * m[column][k];
    }
  }
  std::array<double, 9> map{};
  for (std::size_t i = 0; i < 8; ++i) map[i] = m[i][8] / m[i][i];
  map[8] = 1;
  return map;
}

namespace {

class RandomPerspective {
 public:
  static constexpr const char* kName = "random_perspective";
  static constexpr const char* kHelp = "move the corners inwards at random, with probability p";
  static constexpr Parameter kParams[] = {
      number("distortion_scale", "0.5", 0, 1, "most shift of a corner, as a part of half a side"),
      number("p", "0.5", 0, 1, "probability"),
      choice("interpolation", "bilinear", "nearest|bilinear", "how positions are read"),
      fill_param()};

  explicit RandomPerspective(const Values& values)
      : distortion_(values.number("distortion_scale")),
        p_(values.number("p")),
        interpolation_(values.interpolation()) {
    values.fill(fill_);
  }

  Warp warp(Size input, Call& call) const {
    Warp warp = Warp::identity(input);
    const bool distorted = call.chance(p_);
    call.report("distorted", distorted);
    if (!distorted) return warp;
    const int w = input.width;
    const int h = input.height;
    const auto shift = [&](int side) {
      const int half = side / 2;  // rounded down, as torchvision does
      return static_cast<int>(call.integer(static_cast<std::uint32_t>(distortion_ * half) + 1));
    };
    // Clockwise from the upper left; x before y.
    Corners to;
    to[0].first = shift(w), to[0].second = shift(h);
    to[1].first = w - 1 - shift(w), to[1].second = shift(h);
    to[2].first = w - 1 - shift(w), to[2].second = h - 1 - shift(h);
    to[3].first = shift(w), to[3].second = h - 1 - shift(h);
    const Corners from{{{0, 0}, {w - 1, 0}, {w - 1, h - 1}, {0, h - 1}}};
    const auto map = perspective_map(from, to);
    std::copy(map.begin(), map.end(), warp.map);
    warp.set_interpolation(interpolation_);
    std::copy(fill_, fill_ + 4, warp.fill);
    return warp;
  }

 private:
  double distortion_, p_;
  Interpolation interpolation_;
  std::uint8_t fill_[4];
};

}  // namespace

const millrace_unit kRandomPerspective = kUnit<RandomPerspective>;

}  // namespace millrace::augment
