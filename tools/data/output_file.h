// Writing a data set's file whole or not at all: under a temporary name, then renamed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace millrace::tools {

/// The name a file has while it is being written; hidden, so that readers pass it over.
std::string partial_name(const std::string& file_name);

/// Puts `bytes` at `path`. Throws RunError with the file and the system's reason; nothing is left
/// behind then.
void write_file(const std::string& path, std::span<const std::uint8_t> bytes);

/// Like write_file, but a file that is there already must hold exactly these bytes (it is left
/// alone) unless `force`. Throws RunError for one that differs.
void write_or_match(const std::string& path, std::span<const std::uint8_t> bytes, bool force);

/// Makes a folder and those above it; RunError.
void make_folder(const std::string& path);

}  // namespace millrace::tools
