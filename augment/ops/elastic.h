// Reads an image at positions displaced pixel by pixel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.hpp"

namespace millrace::augment {

struct Displacement {
  const float* x;  ///< pixels to the right, width * height of them, row by row
  const float* y;  ///< pixels down
};

/// Sets output pixel (x, y) to the input at (x + dx, y + dy), or to `fill` outside the input. `to`
/// has the size of `from`. Bilinear weights have 11 bits and results are rounded to nearest, halves
/// up. Nearest rounds halves to even positions, as torch's grid_sample does.
void displace(const ConstImage& from, const Displacement& by, Interpolation interpolation,
              const std::uint8_t (&fill)[4], const Image& to);

}  // namespace millrace::augment
