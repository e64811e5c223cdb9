// Samples at a place in a file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/private_api.h"
#include "millrace/reader.h"

namespace millrace::base {

/// Smallest size that lists cannot hold: they keep 32 bits of a sample's size, and this number for
/// any longer sample, so that only that sample fails when it is read.
inline constexpr std::uint32_t kTooLong = std::numeric_limits<std::uint32_t>::max();
inline std::uint32_t listed_size(std::uint64_t size) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(size, kTooLong));
}

/// Stores `path`. Returns false if it is too long to be opened.
MILLRACE_PRIVATE_API bool set_path(Location& location, std::string_view path);

/// Opens the file and reads a sample from it. Throws DataError, also if the file's length has
/// changed.
MILLRACE_PRIVATE_API Sample read_located(const Location& location, Buffer& scratch);
/// Reads a sample from a file that is already open.
Sample read_located(const Location& location, int descriptor, Buffer& scratch);

}  // namespace millrace::base
