// How a mask takes a warp of its image: by nearest neighbour, because class ids have no mean.
#pragma once

#include <cstdint>

#include "millrace/millrace.h"

namespace millrace::augment {

/// Returns the warp for a mask of the image that `warp` is for. `fill` is the class id outside of
/// the window.
millrace_warp for_mask(const millrace_warp& warp, std::uint8_t fill);

}  // namespace millrace::augment
