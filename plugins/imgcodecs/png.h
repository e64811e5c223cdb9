// Decodes PNG with libpng itself, which writes rows in place as they arrive and returns errors as
// text; OpenCV would print them to stderr. The transformations are those of OpenCV's imdecode, so
// levels are equal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.h"

namespace imgcodecs {

/// Implements millrace_decoder::decode for whole images whose header was read.
millrace_status decode_png(void* context, const std::uint8_t* bytes, std::size_t size,
                           const millrace_decode* request, std::uint8_t* pixels,
                           std::size_t row_bytes, millrace_call* call);

}  // namespace imgcodecs
