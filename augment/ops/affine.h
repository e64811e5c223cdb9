// The matrix of random_affine, in a header so that tests can compare it with torchvision's.
#pragma once

#include <array>

namespace millrace::augment {

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

}  // namespace millrace::augment
