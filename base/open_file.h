// Opens and reads files. Never hangs on a FIFO, and says what to do if a path does not exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/private_api.h"

namespace millrace::base {

struct OpenFile {
  Descriptor descriptor;
  std::uint64_t size = 0;  ///< size in bytes
};

/// Throws RunError if `error`, an errno, means that this process or machine has run out of a
/// resource. Then the data is not at fault, and no sample may be left out for it.
void require_resources(std::string_view path, int error);

/// Opens a regular file for reading. Throws DataError for anything else.
MILLRACE_PRIVATE_API OpenFile open_regular(const char* path);
inline OpenFile open_regular(const std::string& path) { return open_regular(path.c_str()); }

/// Reads `size` bytes from `offset` on and returns their number; it is smaller only at the end of
/// the file. Throws DataError.
MILLRACE_PRIVATE_API std::size_t read_at(int descriptor, std::uint8_t* out, std::size_t size,
                                         std::uint64_t offset, const char* path);

}  // namespace millrace::base
