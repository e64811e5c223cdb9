// The matrix behind random_perspective, apart so that tests can hold it against torchvision's.
#pragma once

#include <array>
#include <utility>

namespace millrace::augment {

/// Four points (x, y) in continuous coordinates, clockwise from the upper left.
using Corners = std::array<std::pair<double, double>, 4>;

/// The projective map, row major, that takes each point of `to` to that of `from`.
std::array<double, 9> perspective_map(const Corners& from, const Corners& to);

}  // namespace millrace::augment
