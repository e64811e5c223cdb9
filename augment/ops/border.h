// Padding that shows the image itself: edge, reflect and symmetric.
#pragma once

#include <cstdint>

#include "millrace/image.h"
#include "millrace/millrace.h"

namespace millrace::augment {

/// Carries out an index move whose border is not a colour; `to` is interleaved, as large as
/// warp.output.
void copy_with_border(const ImageView& from, const millrace_warp& warp, std::uint8_t* to);

/// The warp moves pixels and none of its output comes from outside the window.
bool shows_no_fill(const millrace_warp& warp);

}  // namespace millrace::augment
