// The matrix of random_perspective, in a header so that tests can compare it with torchvision's.
#pragma once

#include <array>
#include <utility>

namespace millrace::augment {

/// Four points (x, y) in continuous coordinates, clockwise from the upper left.
using Corners = std::array<std::pair<double, double>, 4>;

/// Returns the projective map, row major, from the points of `to` to those of `from`.
std::array<double, 9> perspective_map(const Corners& from, const Corners& to);

}  // namespace millrace::augment
