// Contact sheet as a PNG. A module of its own (millrace_sheet.so), loaded on demand, because
// OpenCV, which draws and encodes the sheet, is not part of the program.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/private_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/// One picture and its caption.
struct millrace_tile {
  const std::uint8_t* pixels;  ///< height x width x channels, contiguous
  int width, height, channels;
  const char* const* lines;
  std::size_t line_count;
};

/// Calls `write` with the bytes of a PNG. Returns 0, or 1 after writing a line to `error`.
MILLRACE_PRIVATE_API int millrace_make_sheet(const millrace_tile* tiles, std::size_t count,
                                             int columns,
                                             void (*write)(void* context, const std::uint8_t* bytes,
                                                           std::size_t size),
                                             void* context, char* error, std::size_t error_size);

#ifdef __cplusplus
}
#endif
