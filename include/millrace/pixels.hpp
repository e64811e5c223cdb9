// Sizes, images and warps in C++: what millrace.hpp's geometric, pixel and filter units take and
// return.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.h"

constexpr bool operator==(const millrace_size& a, const millrace_size& b) {
  return a.width == b.width && a.height == b.height;
}
constexpr bool operator==(const millrace_rect& a, const millrace_rect& b) {
  return a.x0 == b.x0 && a.y0 == b.y0 && a.x1 == b.x1 && a.y1 == b.y1;
}

namespace millrace {
// Version of the inline code, renamed whenever that code changes: a plugin must not get another
// version's functions from the host. (The CMake function for plugins hides them as well.)
inline namespace plugin_v1 {

/// Width and height in pixels.
using Size = millrace_size;
/// Half-open rectangle [x0, x1) x [y0, y1) in pixels.
using Rect = millrace_rect;
/// Writable 8-bit pixels, interleaved.
using Image = millrace_image;
/// Read-only 8-bit pixels, interleaved.
struct ConstImage {
  const std::uint8_t* data = nullptr;
  int width = 0, height = 0, channels = 0;
  std::ptrdiff_t row = 0;
};

/// Writable pixels as floats, interleaved (decode.depth).
using FloatImage = millrace_float_image;

/// How a level at a position between pixels is computed.
enum class Interpolation : std::int32_t {
  none = MILLRACE_INDEX,         ///< whole offsets, flips and right angles: levels stay exact
  nearest = MILLRACE_NEAREST,    ///< the pixel whose square holds the position
  bilinear = MILLRACE_BILINEAR,  ///< two taps per axis; more if Warp::antialias widens them
};
/// Levels outside the window.
enum class Border : std::int32_t {
  constant = MILLRACE_CONSTANT,    ///< Warp::fill
  clamp = MILLRACE_CLAMP,          ///< the nearest pixel inside
  reflect = MILLRACE_REFLECT,      ///< mirrored at the edge pixel's middle
  symmetric = MILLRACE_SYMMETRIC,  ///< mirrored at the image's edge
};

/// Maps each output pixel to a position in the input (millrace_warp).
struct Warp : millrace_warp {
  /// Returns the map that shows the whole input unchanged.
  static Warp identity(Size input) {
    return {{{1, 0, 0, 0, 1, 0, 0, 0, 1},
             input,
             {0, 0, input.width, input.height},
             {},
             MILLRACE_INDEX,
             MILLRACE_CONSTANT,
             0}};
  }
  /// Sets an affine map: u = a x + b y + c, v = d x + e y + f.
  void set_map(double a, double b, double c, double d, double e, double f) {
    const double all[] = {a, b, c, d, e, f, 0, 0, 1};
    for (int i = 0; i < 9; ++i) map[i] = all[i];
  }
  void set_interpolation(Interpolation i) { interpolation = static_cast<std::int32_t>(i); }
  void set_border(Border b) { border = static_cast<std::int32_t>(b); }
};

}  // namespace plugin_v1
}  // namespace millrace
