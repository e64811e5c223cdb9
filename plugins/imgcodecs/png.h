// PNG through libpng itself: it writes rows in place as they arrive, and what it objects to comes
// back as text; through OpenCV it would go to stderr. The transformations are those of OpenCV's
// imdecode, so that levels are the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.h"

namespace imgcodecs {

/// As millrace_decoder::decode, for whole images whose header was read.
millrace_status decode_png(void* context, const std::uint8_t* bytes, std::size_t size,
                           const millrace_decode* request, std::uint8_t* pixels,
                           std::size_t row_bytes, millrace_call* call);

}  // namespace imgcodecs
