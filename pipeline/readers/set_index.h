// Index of a whole set of archives: which there are, in order, and what each holds. It takes a few
// hundred bytes per archive, and opens a set with one request. docs/reference/shard-index.md lists
// every field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "pipeline/readers/shard_index.h"

namespace millrace::pipeline {

/// Name of the file, in the folder that holds the archives.
inline constexpr const char* kSetIndexFile = "set.index";

struct SetIndex {
  static constexpr std::uint32_t kVersion = 1;

  struct Shard {
    std::string name;                     ///< relative to the folder, with '/' between parts
    std::uint64_t size = 0;               ///< of the archive, in bytes
    std::uint64_t index_size = 0;         ///< of its index file, in bytes
    std::uint64_t samples = 0;            ///< their number
    std::uint64_t image_bytes = 0;        ///< sum of their sizes
    std::uint64_t unlabelled = 0;         ///< samples without a label
    std::uint64_t unlabelled_beside = 0;  ///< those among them with a .json without a label
    std::uint64_t fingerprint = 0;        ///< TarIndex::fingerprint
    std::int32_t largest_label = -1;
    Sha256 sha256{};                   ///< of the archive
    std::vector<std::string> folders;  ///< folders with images, as named in the archive
  };
  std::vector<Shard> shards;         ///< train's first, sorted bytewise
  std::vector<std::string> classes;  ///< names from classes.txt; may be empty
};

MILLRACE_PRIVATE_API std::vector<std::byte> to_bytes(const SetIndex& index);

/// Parses an index; `file` is for messages. Throws DataError for bytes that are not an index of a
/// set, truncated, damaged, of another version or inconsistent, and for names that lead out of the
/// folder.
MILLRACE_PRIVATE_API SetIndex parse_set_index(std::string_view file,
                                              std::span<const std::uint8_t> bytes);

/// Writes the checksums into a header that was changed; for tests.
MILLRACE_PRIVATE_API void seal_set_index(std::span<std::uint8_t> bytes);

}  // namespace millrace::pipeline
