// Checksums of files, to detect damage.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace millrace::base {

/// Returns the XXH3 (64 bits) of the bytes as 16 hexadecimal digits.
std::string checksum(std::string_view bytes);
/// Returns the checksum of a file's content. Throws DataError if it cannot be read.
std::string file_checksum(const std::filesystem::path& file);

}  // namespace millrace::base
