// Opens the files and folders of a data set. Never hangs on a FIFO, and says what to do if a path
// does not exist.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/printable.h"
#include "millrace/reader.h"

namespace millrace::base {

struct OpenFile {
  Descriptor descriptor;
  std::uint64_t size = 0;  ///< size in bytes
};

/// Throws RunError if `error`, an errno, means that this process or machine has run out of a
/// resource. Then the data is not at fault, and no sample may be left out for it.
void require_resources(std::string_view path, int error);

/// Opens a regular file for reading. Throws DataError for anything else.
OpenFile open_regular(const char* path);
inline OpenFile open_regular(const std::string& path) { return open_regular(path.c_str()); }

/// Reads `size` bytes from `offset` on and returns their number; it is smaller only at the end of
/// the file. Throws DataError.
std::size_t read_at(int descriptor, std::uint8_t* out, std::size_t size, std::uint64_t offset,
                    const char* path);

/// Smallest size that lists cannot hold: they keep 32 bits of a sample's size, and this number for
/// any longer sample, so that only that sample fails when it is read.
inline constexpr std::uint32_t kTooLong = std::numeric_limits<std::uint32_t>::max();
inline std::uint32_t listed_size(std::uint64_t size) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(size, kTooLong));
}

/// Stores `path`. Returns false if it is too long to be opened.
bool set_path(Location& location, std::string_view path);

/// Opens the file and reads a sample from it. Throws DataError, also if the file's length has
/// changed.
Sample read_located(const Location& location, Buffer& scratch);
/// Reads a sample from a file that is already open.
Sample read_located(const Location& location, int descriptor, Buffer& scratch);

/// Throws DataError unless `path` is a folder; the hint says how to get a data set.
void require_folder(const std::string& path);

/// Return true if `path` exists (as anything, or as a folder).
bool exists(const std::string& path);
bool is_folder(const std::string& path);

}  // namespace millrace::base
