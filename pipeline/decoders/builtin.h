// The decoders that are built in, by the same table that a plugin exports.
#pragma once

#include "plugins/millrace.h"

namespace millrace {

extern const millrace_decoder kJpegDecoder;

}  // namespace millrace
