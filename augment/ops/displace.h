// An image read at displaced positions, pixel by pixel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.hpp"

namespace millrace::augment {

struct Displacement {
  const float* x;  ///< pixels to the right, width * height of them, row after row
  const float* y;  ///< pixels down
};

/// Output pixel (x, y) is read at (x + dx, y + dy); what lies outside has the level `fill` of its
/// channel. `to` is as large as `from`. Bilinear weights have 11 bits, results are rounded to
/// nearest, halves up; nearest takes halves to the even place, as torch's grid_sample.
void displace(const ConstImage& from, const Displacement& by, Interpolation interpolation,
              const std::uint8_t (&fill)[4], const Image& to);

}  // namespace millrace::augment
