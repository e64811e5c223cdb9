// Outlines of objects, filled as masks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/private_api.h"
#include "millrace/annotations.h"

namespace millrace::pipeline {

/// Sets the pixels of an image (`size`, row by row, all 0) to 1 where object `index` is, and
/// returns a rectangle that holds them. A polygon holds the pixels whose centres lie inside it, by
/// the even-odd rule, and an object those of all its polygons. Takes time for each polygon's
/// rectangle and its edges times their heights, whatever the image's size.
MILLRACE_PRIVATE_API Rect fill_outline(const Outlines& outlines, std::size_t index, Size size,
                                       std::uint8_t* pixels);

/// Sets the pixels of a rectangle of an image to 0.
MILLRACE_PRIVATE_API void clear_pixels(const Rect& rectangle, Size size, std::uint8_t* pixels);

/// Appends the outline of object `index` of `from`.
void append_outline(const Outlines& from, std::size_t index, Outlines& to);

}  // namespace millrace::pipeline
