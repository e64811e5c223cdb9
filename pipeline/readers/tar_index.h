// Index of a tar archive's samples: WebDataset's (members of one key: image, .cls or .json), or an
// image folder's files (the folder is the class). Layout: WebDataset, "The WebDataset format" (a
// key is a path up to the first dot of its last part).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::pipeline {

struct TarIndex {
  struct Entry {
    std::uint64_t data;    ///< offset of the image's bytes
    std::uint32_t size;    ///< their number
    std::uint32_t back;    ///< bytes from its first header to `data`
    std::int32_t label;    ///< -1: none given
    std::uint32_t folder;  ///< index in `folders`
  };
  std::vector<Entry> samples;           ///< in the archive's order
  std::vector<std::string> folders;     ///< folders with images, as named in the archive
  std::uint64_t unlabelled = 0;         ///< samples whose label is -1
  std::uint64_t unlabelled_beside = 0;  ///< those among them with a .json without a label
  std::uint64_t fingerprint = 0;        ///< hash of names, sizes and labels
};

/// Indexes an archive in memory. Throws DataError with `file` and the offset for a damaged archive,
/// a link named like an image, a key that comes twice or an invalid label.
TarIndex index_tar(std::string_view file, std::span<const std::uint8_t> bytes);

/// Returns the name of an entry's image.
std::string tar_name(std::string_view file, std::span<const std::uint8_t> bytes,
                     const TarIndex::Entry& entry);

}  // namespace millrace::pipeline
