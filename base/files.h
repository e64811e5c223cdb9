// Opening files and folders of a data set: never hangs on a FIFO, and says what to do when a path
// is not there.
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
  std::uint64_t size = 0;  ///< bytes
};

/// Throws RunError where `error`, an errno, says that this process or machine has run out of
/// something: then the data is not at fault, and no sample may be left out for it.
void require_resources(std::string_view path, int error);

/// Opens a regular file for reading. Throws DataError for anything else.
OpenFile open_regular(const char* path);
inline OpenFile open_regular(const std::string& path) { return open_regular(path.c_str()); }

/// Reads `size` bytes from `offset` on; fewer only where the file ends. Throws DataError.
std::size_t read_at(int descriptor, std::uint8_t* out, std::size_t size, std::uint64_t offset,
                    const char* path);

/// Samples of so many bytes or more cannot be read. Lists keep 32 bits of a size, and this for any
/// that is longer, so that such a sample fails by itself when it is read.
inline constexpr std::uint32_t kTooLong = std::numeric_limits<std::uint32_t>::max();
inline std::uint32_t listed_size(std::uint64_t size) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(size, kTooLong));
}

/// False if the path is too long to be opened.
bool set_path(Location& location, std::string_view path);

/// Opens the file and reads a sample from it. Throws DataError, also for a file that is not as long
/// as it was.
Sample read_located(const Location& location, Buffer& scratch);
/// The same from a file that is open already.
Sample read_located(const Location& location, int descriptor, Buffer& scratch);

/// Throws DataError unless `path` is a folder; the hint tells how to get a data set.
void require_folder(const std::string& path);

/// True if `path` is there (as anything, or as a folder).
bool exists(const std::string& path);
bool is_folder(const std::string& path);

}  // namespace millrace::base
