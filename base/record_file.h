// Files of records, which anyone may have written: a run directory is data.
//
// A FIFO in place of a file blocks whoever opens it, a device may do anything when it is opened,
// and a sparse file of any size costs its author nothing. Every file of a run, a sweep or a
// checkpoint is therefore opened here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/open_file.h"
#include "base/private_api.h"

namespace millrace::base {

/// Bound of a file that is read whole: a recipe or a JSON document, in bytes.
inline constexpr std::uint64_t kLargestRecord = std::uint64_t{64} << 20;
/// Bound of a line, in bytes.
inline constexpr std::size_t kLongestLine = std::size_t{16} << 20;
/// Bound of a file's holes together, in bytes: no writer of records leaves any.
inline constexpr std::uint64_t kLargestHoles = std::uint64_t{4} << 30;

/// Opens a file for reading. The descriptor is empty, and errno says why, if there is no such file
/// or it may not be read. Throws DataError without opening it if it is anything but a regular
/// file, and for a sparse file with more than kLargestHoles.
MILLRACE_PRIVATE_API OpenFile find_record(const std::filesystem::path& file);
/// Does the same for a stream of bytes, which is not open if the descriptor would be empty.
MILLRACE_PRIVATE_API std::ifstream open_record(const std::filesystem::path& file);

/// Returns the whole of a file that open_record() has opened. Throws DataError beyond
/// kLargestRecord bytes.
MILLRACE_PRIVATE_API std::string read_record(std::ifstream& in, const std::filesystem::path& file);
/// Opens and reads a file; empty if there is no such file or it may not be read.
MILLRACE_PRIVATE_API std::string read_record(const std::filesystem::path& file);

/// Reads a line as std::getline() does: in.eof() is true after an incomplete last one. Throws
/// DataError if a line of `file` is longer than kLongestLine.
MILLRACE_PRIVATE_API bool read_line(std::istream& in, std::string& line,
                                    const std::filesystem::path& file);

/// Opens a file in a run for writing with the `flags` of open(2), and creates it if it is missing.
/// Throws UsageError without opening it if it is a link, has several names or is anything but a
/// regular file: what is written would land elsewhere. Throws RunError if it cannot be opened.
MILLRACE_PRIVATE_API Descriptor open_own(const std::filesystem::path& file, int flags);

/// Returns whether `name`, which a record says, is one component of a path and stays in its folder.
MILLRACE_PRIVATE_API bool is_file_name(std::string_view name);

}  // namespace millrace::base
