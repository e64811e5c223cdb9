// Writes a data set's file atomically: under a temporary name, then renamed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

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

// Prepares the folder of a generated set, which must hold nothing else.

/// Makes the folder, or checks that an existing one holds only files of these relative names (from
/// an earlier, perhaps interrupted run). Unless `force`, throws RunError with anything else in it.
void prepare_folder(const std::string& path, const std::vector<std::string>& names, bool force);

}  // namespace millrace::tools
