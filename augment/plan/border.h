// Padding that is filled from the image itself: edge, reflect and symmetric.
#pragma once

#include <cstdint>

#include "millrace/image.h"
#include "millrace/millrace.h"

namespace millrace::augment {

/// Performs an index move whose border is not a colour. `to` is interleaved and has the size of
/// warp.output and the depth of `from`.
void copy_with_border(const ImageView& from, const millrace_warp& warp, std::uint8_t* to);

/// Returns whether the warp only moves pixels and none of its output comes from outside the window.
bool shows_no_fill(const millrace_warp& warp);

}  // namespace millrace::augment
