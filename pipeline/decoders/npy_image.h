// Images as NumPy arrays (.npy): height x width, or height x width x channels, of uint8, uint16 or
// float32. They are not decoded: augmentations read them where they lie.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/private_api.h"
#include "millrace/image.h"

namespace millrace::pipeline {

/// Ending of a NumPy array's file name.
inline constexpr std::string_view kNpyEnding = ".npy";

/// Returns whether the bytes begin like a NumPy array.
MILLRACE_PRIVATE_API bool is_npy(std::span<const std::uint8_t> bytes);

/// Parses an array's header (format 1.0 to 3.0, numpy.lib.format) and checks its length. The view
/// points into `bytes`. Throws DataError for anything but an image in C order and little-endian.
MILLRACE_PRIVATE_API ImageView parse_npy(std::span<const std::uint8_t> bytes);

/// Returns the decoder that accepts NumPy arrays. It copies their pixels; DecodeScratch does not
/// call it if they can be read in place.
MILLRACE_PRIVATE_API const millrace_unit& npy_decoder();

}  // namespace millrace::pipeline
