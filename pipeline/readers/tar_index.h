// What a tar archive holds for a data set: WebDataset's samples (members of one key: image, .cls or
// .json) or an image folder's files (the folder is the class).
// Layout: WebDataset, "The WebDataset format" (a key is a path up to the first dot of its last
// part).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::pipeline {

struct TarIndex {
  struct Entry {
    std::uint64_t data;    ///< where the image's bytes begin
    std::uint32_t size;    ///< how many there are
    std::uint32_t back;    ///< its first header lies so far before `data`
    std::int32_t label;    ///< -1: none is given
    std::uint32_t folder;  ///< index in `folders`
  };
  std::vector<Entry> samples;           ///< in the archive's order
  std::vector<std::string> folders;     ///< those that images lie in, as they stand in the archive
  std::uint64_t unlabelled = 0;         ///< samples whose label is -1
  std::uint64_t unlabelled_beside = 0;  ///< of those, the ones with a .json that gives no label
  std::uint64_t fingerprint = 0;        ///< of names, sizes and labels
};

/// Indexes an archive in memory. Throws DataError with `file` and the offset for a damaged archive,
/// links named like an image, keys that come twice, labels that are none.
TarIndex index_tar(std::string_view file, std::span<const std::uint8_t> bytes);

/// What the image of an entry is called.
std::string tar_name(std::string_view file, std::span<const std::uint8_t> bytes,
                     const TarIndex::Entry& entry);

}  // namespace millrace::pipeline
