// Encodes JPEG files for generated data sets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/image.h"

namespace millrace::tools {

/// Encodes interleaved RGB as baseline JPEG with 4:2:0 chroma; `quality` 1 to 100. Throws RunError.
std::vector<std::uint8_t> encode_jpeg(std::span<const std::uint8_t> pixels, Size size, int quality);

}  // namespace millrace::tools
