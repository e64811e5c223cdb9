// SHA-256 of files.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace millrace::tools {

/// Returns the SHA-256 of an open file's content; `path` is for messages. Throws DataError if it
/// cannot be read.
std::array<std::uint8_t, 32> sha256_of(int descriptor, const std::string& path);

/// Returns the hash as 64 hexadecimal digits.
std::string hex(const std::array<std::uint8_t, 32>& hash);

}  // namespace millrace::tools
