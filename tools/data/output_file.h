// Writes a data set's file atomically: under a temporary name, then renamed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace millrace::tools {

/// Returns the temporary name of a file while it is written; hidden, so that readers skip it.
std::string partial_name(const std::string& file_name);

/// Writes `bytes` to `path`. Throws RunError with the file and the system's reason, and then leaves
/// nothing behind.
void write_file(const std::string& path, std::span<const std::uint8_t> bytes);

/// Like write_file(), but keeps an existing file that holds exactly these bytes. Unless `force`,
/// throws RunError for one that differs.
void write_or_match(const std::string& path, std::span<const std::uint8_t> bytes, bool force);

/// Makes a folder and its parents. Throws RunError.
void make_folder(const std::string& path);

}  // namespace millrace::tools
