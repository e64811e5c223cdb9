// Geometry that augmentations share: sizes, padding and cropping in torchvision's conventions,
// and the matrices of random_affine and random_perspective.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "millrace/image.h"
#include "millrace/millrace.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

/// Returns "640x480".
std::string to_text(Size size);

/// Reads [side] or [height, width].
Size to_size(const Numbers& numbers);

/// Pixels added on each side; negative numbers remove pixels.
struct Sides {
  int left = 0, top = 0, right = 0, bottom = 0;
};
/// Reads [all], [x, y] or [left, top, right, bottom].
Sides to_sides(const Numbers& numbers);

/// Returns the window of `size` whose upper left corner is at (x, y) of the input. Pixels outside
/// the input show `fill`.
Warp cropped(Size input, int x, int y, Size size, const std::uint8_t (&fill)[4]);

/// Returns [x, x + width) x [y, y + height) of the input, stretched to `output`. With `antialias`,
/// taps widen where that shrinks. Positions are pixel centres.
Warp resized(Size input, double x, double y, double width, double height, Size output,
             Interpolation interpolation, bool antialias);

// The matrix of random_affine, in a header so that tests can compare it with torchvision's.

struct AffineParameters {
  double degrees = 0;                       ///< clockwise on the screen, as torchvision's affine
  double translate_x = 0, translate_y = 0;  ///< pixels
  double scale = 1;
  double shear_x = 0, shear_y = 0;  ///< degrees
};

/// Returns the map from output to input in continuous coordinates about (center_x, center_y). It is
/// the inverse of translate * centre * rotate-and-scale * shear * centre^-1, as torchvision
/// composes it.
std::array<double, 6> inverse_affine(const AffineParameters& p, double center_x, double center_y);

// The matrix of random_perspective, in a header so that tests can compare it with torchvision's.

/// Four points (x, y) in continuous coordinates, clockwise from the upper left.
using Corners = std::array<std::pair<double, double>, 4>;

/// Returns the projective map, row major, from the points of `to` to those of `from`.
std::array<double, 9> perspective_map(const Corners& from, const Corners& to);

}  // namespace millrace::augment
