// Members and samples of one tar archive in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"

namespace millrace::pipeline {

/// A member of a tar archive.
struct TarMember {
  std::string_view name;    ///< without a leading "./"; valid until the next call of next()
  std::uint64_t start = 0;  ///< offset of its first header, long-name headers included
  std::uint64_t data = 0;   ///< offset of its bytes
  std::uint64_t size = 0;
  const char* odd = nullptr;  ///< null for a file, otherwise its type: "a symbolic link"
};

/// Walks the members of a tar archive in memory, header by header: ustar, GNU's long names, and
/// pax's paths and sizes. Unpacks and writes nothing, so no member can escape; names that try to
/// (absolute, or with "..") are rejected all the same. Format: POSIX.1-2017, pax; GNU tar manual,
/// "Basic Tar Format".
class TarWalk {
 public:
  static constexpr std::size_t kBlock = 512;

  /// `file` is for messages; `offset` is the start of the first member to visit. `bytes` may end
  /// before the archive does, `behind` bytes earlier: within the contents of the last member that
  /// is visited.
  TarWalk(std::string_view file, std::span<const std::uint8_t> bytes, std::uint64_t offset = 0,
          std::uint64_t behind = 0)
      : file_(file), bytes_(bytes), at_(offset), behind_(behind) {}

  /// Returns the next file, link or device in `member`; false at the end. Skips folders. Throws
  /// DataError with file and offset for bytes that are not an archive, damaged, truncated or of an
  /// unknown type.
  bool next(TarMember& member);

 private:
  struct Extended;

  std::span<const std::uint8_t> header(std::uint64_t at) const;
  std::uint64_t number(std::span<const std::uint8_t> field, std::uint64_t at,
                       const char* what) const;
  std::span<const std::uint8_t> contents(std::uint64_t at, std::uint64_t size) const;
  void check_room(std::uint64_t at, std::uint64_t size, std::uint64_t room) const;
  void read_pax(std::span<const std::uint8_t> records, std::uint64_t at, Extended& extended) const;
  void check_end() const;
  [[noreturn]] void fail(std::uint64_t at, const std::string& reason, const char* hint) const;

  std::string_view file_;
  std::span<const std::uint8_t> bytes_;
  std::uint64_t at_;
  std::uint64_t behind_;
  std::string name_;
};

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

/// Returns the name of the image whose headers are `headers`, from TarIndex::Entry::back bytes
/// before its first byte on; `size` bytes of the archive follow. Throws DataError.
std::string tar_name(std::string_view file, std::span<const std::uint8_t> headers,
                     std::uint64_t size);

/// Returns the name of an entry's image.
std::string tar_name(std::string_view file, std::span<const std::uint8_t> bytes,
                     const TarIndex::Entry& entry);

}  // namespace millrace::pipeline
