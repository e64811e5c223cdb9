// Lists the samples of archives in the cheapest way that is safe: from the index file next to the
// archive, from the user's cache, from DALI's index file, or by walking the archive.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/private_api.h"
#include "millrace/reader.h"
#include "pipeline/readers/shard_index.h"

namespace millrace::pipeline {

/// Returns the name of an archive's index file.
inline std::string index_path(const std::string& shard) {
  return shard + std::string(kShardIndexEnding);
}

/// Reads the index file of `shard`. Throws DataError if it is damaged or belongs to another
/// archive; its stamp is not compared.
MILLRACE_PRIVATE_API ShardIndex read_shard_index(const std::string& shard, bool names = false);

/// Returns the folder of cached listings, $XDG_CACHE_HOME/millrace/listings, by default below
/// ~/.cache; empty if neither variable is set.
MILLRACE_PRIVATE_API std::string listing_cache();

/// Lists archives one after the other.
class Listings {
 public:
  /// `warn` receives one warning on all indexes that do not fit. It may be empty.
  Listings(IndexUse use, std::function<void(const std::string&)> warn);

  /// Returns the samples of an archive whose stamp is `now`, and in `sha256` the archive's hash if
  /// an index file says it. Throws DataError for a damaged archive, an index of another archive,
  /// and with IndexUse::require for an index that is missing, damaged or stale.
  TarIndex list(const std::string& shard, const FileStamp& now, Sha256& sha256);
  /// Issues the warning and trims the cache.
  void finish();

 private:
  bool from_index(const std::string& shard, const FileStamp& now, TarIndex& out, Sha256& sha256);
  bool from_dali_index(const std::string& shard, const FileStamp& now, bool names, TarIndex& out);
  bool from_cache(const std::string& shard, const FileStamp& now, TarIndex& out) const;
  void store(const std::string& shard, const FileStamp& now, const TarIndex& tar);
  void set_aside(const std::string& reason, const std::string& hint);

  IndexUse use_;
  std::function<void(const std::string&)> warn_;
  std::string cache_;      ///< empty: no cache
  std::string first_odd_;  ///< the first index that does not fit, and why
  std::uint64_t odd_ = 0;  ///< their number
  bool stored_ = false;
};

}  // namespace millrace::pipeline
