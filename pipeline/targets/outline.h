// Outlines of objects, filled as masks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/private_api.h"
#include "millrace/annotations.h"

namespace millrace::pipeline {

/// Sets the pixels of an image (`size`, row by row) to 1 where object `index` is, and to 0
/// elsewhere. A polygon holds the pixels whose centres lie inside it, by the even-odd rule, and an
/// object those of all its polygons. Takes time for the image's area and each polygon's edges times
/// their heights.
MILLRACE_PRIVATE_API void fill_outline(const Outlines& outlines, std::size_t index, Size size,
                                       std::uint8_t* pixels);

/// Appends the outline of object `index` of `from`.
void append_outline(const Outlines& from, std::size_t index, Outlines& to);

}  // namespace millrace::pipeline
