// Index file of one archive: a header, records of fixed width, and tables of names. It can be
// mapped or fetched by range; docs/reference/shard-index.md lists every field.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/private_api.h"
#include "pipeline/readers/tar_index.h"

namespace millrace::pipeline {

/// Identity and times of a file, which tell whether it has changed.
struct FileStamp {
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;  ///< last change of its bytes; programs can set it
  std::int64_t ctime_ns = 0;  ///< last change of its bytes, name or mode; only the system sets it
  std::uint64_t inode = 0;
  std::uint64_t device = 0;
  bool operator==(const FileStamp&) const = default;
};

/// Returns the stamp of an open file. Throws DataError with `path`.
MILLRACE_PRIVATE_API FileStamp stamp_of(int descriptor, std::string_view path);

/// Waits until a change of the file would give it another change time. Clocks tick every few
/// milliseconds, those of old file systems every 2 s.
MILLRACE_PRIVATE_API void wait_until_settled(const FileStamp& stamp);

/// Returns how a file differs from the one that was listed, or null. A copy has times of its own:
/// the change time counts only if the file is the listed one itself (device and inode).
MILLRACE_PRIVATE_API const char* difference(const FileStamp& listed, const FileStamp& now);

// The index.

/// Added to an archive's name.
inline constexpr std::string_view kShardIndexEnding = ".index";

using Sha256 = std::array<std::uint8_t, 32>;

struct ShardIndex {
  /// Changes with the layout and with the rules by which an archive is walked.
  static constexpr std::uint32_t kVersion = 1;

  std::string shard;  ///< its archive's file name, or full path in a cache
  FileStamp stamp;    ///< its archive's
  Sha256 sha256{};    ///< its archive's; zeros: not computed
  TarIndex tar;       ///< names and name_at only if asked for
};

/// Returns the content of an index file. `index.tar` must hold its names.
MILLRACE_PRIVATE_API std::vector<std::byte> to_bytes(const ShardIndex& index);

/// Parses an index file; `file` is for messages. Throws DataError for bytes that are not an index,
/// truncated, damaged, of another version or inconsistent.
MILLRACE_PRIVATE_API ShardIndex parse_shard_index(std::string_view file,
                                                  std::span<const std::uint8_t> bytes,
                                                  bool names = false);

/// Records of an index file that are read one by one, so that a large set needs no list of its
/// samples. May be used from many threads.
class MILLRACE_PRIVATE_API ShardRecords {
 public:
  /// Properties of an archive that the index of its set lists.
  struct Expected {
    std::uint64_t samples = 0;
    std::uint64_t fingerprint = 0;
    Sha256 sha256{};
    std::size_t folders = 0;
  };

  /// Opens the index of `shard`, whose stamp is `now`, and reads its header. Returns null if it
  /// cannot be read, does not fit or is not the expected one. The file stays open only if `keep`.
  static std::unique_ptr<ShardRecords> open(const std::string& shard, const FileStamp& now,
                                            const Expected& expected, bool keep);

  /// Returns a record. The first call compares the checksum of the whole file. Throws DataError if
  /// the index is damaged or was replaced since it was opened.
  TarIndex::Entry at(std::uint64_t i) const;
  /// Returns the number of records.
  std::uint64_t count() const { return samples_; }

 private:
  ShardRecords() = default;
  void check_body() const;

  std::string path_;
  base::Descriptor file_;  ///< none: opened for each record
  FileStamp stamp_;        ///< of the index file
  std::uint64_t shard_size_ = 0;
  std::uint64_t samples_ = 0;
  std::uint64_t body_sum_ = 0;
  std::uint32_t folders_ = 0;
  mutable std::mutex checking_;
  mutable std::atomic<bool> checked_{false};  ///< the checksum of the records was right
};

/// Writes the checksums into a header that was changed; for tests.
MILLRACE_PRIVATE_API void seal_shard_index(std::span<std::uint8_t> bytes);

}  // namespace millrace::pipeline
