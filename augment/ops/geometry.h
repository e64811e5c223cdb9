// Helpers that geometric augmentations share: sizes, padding and cropping in torchvision's
// conventions.
#pragma once

#include <cstdint>
#include <string>

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

// Padding filled from the image itself: edge, reflect and symmetric.

/// Performs an index move whose border is not a colour. `to` is interleaved and has the size of
/// warp.output.
void copy_with_border(const ImageView& from, const millrace_warp& warp, std::uint8_t* to);

/// Returns whether the warp only moves pixels and none of its output comes from outside the window.
bool shows_no_fill(const millrace_warp& warp);

}  // namespace millrace::augment
