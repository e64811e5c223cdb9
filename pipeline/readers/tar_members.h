// Other members of an archive's samples than their images: captions, metadata, masks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/private_api.h"
#include "millrace/buffer.h"
#include "millrace/reader.h"
#include "pipeline/readers/tar_index.h"

namespace millrace::pipeline {

/// Longest member that is handed out.
inline constexpr std::uint64_t kMaxMemberBytes = std::uint64_t{16} << 20;

/// Most bytes between the image before a sample's and the one behind it. All of them are read at
/// once, because an index lists images alone.
inline constexpr std::uint64_t kMaxGroupBytes = std::uint64_t{256} << 20;

/// Parses data.members, as "txt,json", to names in lower case. Throws UsageError.
MILLRACE_PRIVATE_API std::vector<std::string> parse_members(const std::string& text);

/// Members that are read with each image.
struct WantedMembers {
  WantedMembers() = default;
  /// Throws UsageError if data.masks is no ending of a member.
  explicit WantedMembers(const DataOptions& options);

  std::vector<std::string> names;  ///< DataOptions::members, then that of the mask, if there is one
  bool mask = false;
};

/// Bytes around the first one of an image among which its sample's other members lie: from the end
/// of the image before to the headers of the next. Numbers that are too large are kTooLong.
struct TarSurroundings {
  std::uint32_t before = 0, behind = 0;
};

/// Returns the surroundings of the sample that `sample` is; null where the archive, which has
/// `archive_bytes`, has none before or behind it.
TarSurroundings surroundings_of(const TarIndex::Entry* before, const TarIndex::Entry& sample,
                                const TarIndex::Entry* behind, std::uint64_t archive_bytes);

/// Returns the surroundings of each sample of an archive.
std::vector<TarSurroundings> all_surroundings(const TarIndex& index, std::uint64_t archive_bytes);

/// The part of an archive that holds a sample and its members, which are read together.
class TarGroup {
 public:
  /// Throws DataError if the part is too long, or if what an index says does not fit together.
  TarGroup(const TarIndex::Entry& sample, const TarSurroundings& around);

  std::uint64_t begin() const { return sample_.data - around_.before; }  ///< in the archive
  std::size_t size() const { return std::size_t{around_.before} + around_.behind; }
  /// Returns memory for the part, which the caller fills.
  std::uint8_t* reserve(Buffer& scratch, const WantedMembers& wanted) const;
  /// Returns the sample with its members and its mask, all of it in `scratch`. Allocates for names
  /// of over 100 bytes only, once it has warmed up. Throws DataError for a member that is too long,
  /// no file, or there twice, for a mask that is missing, and for an archive that was changed.
  Sample find(const WantedMembers& wanted, Buffer& scratch) const;

 private:
  Member* table(Buffer& scratch) const;

  const TarIndex::Entry sample_;
  const TarSurroundings around_;
};

/// Warns once of names that no sample has. Thread-safe.
class SeenMembers {
 public:
  /// `samples` is the number of the data set's.
  void watch(const DataOptions& options, std::uint64_t samples);
  void add(const Sample& sample) const;

 private:
  std::vector<std::string> names_;
  std::function<void(const std::string&)> warn_;
  std::int64_t samples_ = 0;
  mutable std::atomic<std::int64_t> left_{0};    ///< samples to look at
  mutable std::atomic<std::uint64_t> found_{0};  ///< a bit per name
};

}  // namespace millrace::pipeline
