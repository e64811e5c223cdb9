// Checksums, to detect damage.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/private_api.h"

namespace millrace::base {

/// Returns the XXH3 (64 bits) of the bytes as 16 hexadecimal digits.
MILLRACE_PRIVATE_API std::string checksum(std::string_view bytes);
/// Returns the checksum of a file's content. Throws DataError if it cannot be read.
MILLRACE_PRIVATE_API std::string file_checksum(const std::filesystem::path& file);

}  // namespace millrace::base
