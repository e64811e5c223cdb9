// Samples of one tar archive.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "pipeline/readers/tar_walk.h"

namespace millrace::pipeline {

/// Index of a tar archive's samples: WebDataset's (members of one key: image, .cls or .json), or an
/// image folder's files (the folder is the class). Layout: WebDataset, "The WebDataset format" (a
/// key is a path up to the first dot of its last part).
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
  std::uint64_t formats = 0;            ///< image_formats() of the walk
  std::string names;                    ///< names of the images, each with a zero behind it
  std::vector<std::uint32_t> name_at;   ///< offset of each sample's name; empty: not kept
};

struct IndexTarOptions {
  bool names = false;  ///< keep the samples' names
  /// Called after each 64 MiB of the archive, whose pages may be released then. May be empty.
  std::function<void()> passed{};
};

/// Indexes an archive in memory. Throws DataError with `file` and the offset for a damaged archive,
/// a link named like an image, a key that comes twice or an invalid label.
MILLRACE_PRIVATE_API TarIndex index_tar(std::string_view file, std::span<const std::uint8_t> bytes,
                                        const IndexTarOptions& options = {});

/// Parts of a member's name in WebDataset's layout.
struct NameParts {
  std::string_view folder;  ///< without the '/' behind it
  std::string_view key;     ///< folder included
  std::string_view ending;  ///< from the first dot on: "jpg", "seg.png"
  bool hidden = false;
};

NameParts parts_of(std::string_view name);

/// Members of an archive in its order, wherever they are known from.
class TarMembers {
 public:
  virtual ~TarMembers() = default;
  /// As TarWalk::next().
  virtual bool next(TarMember& member) = 0;
  /// Returns a member's bytes, which are valid until the next call.
  virtual std::span<const std::uint8_t> contents(const TarMember& member) = 0;
  /// Returns the name of an entry's image.
  virtual std::string name(const TarIndex::Entry& entry) = 0;
};

/// Indexes an archive by its members. Throws as index_tar().
TarIndex index_members(std::string_view file, TarMembers& members,
                       const IndexTarOptions& options = {});

/// Returns the name of the image whose headers are `headers`, from TarIndex::Entry::back bytes
/// before its first byte on; `size` bytes of the archive follow. Throws DataError.
std::string tar_name(std::string_view file, std::span<const std::uint8_t> headers,
                     std::uint64_t size);

/// Returns the name of an entry's image.
std::string tar_name(std::string_view file, std::span<const std::uint8_t> bytes,
                     const TarIndex::Entry& entry);

}  // namespace millrace::pipeline
