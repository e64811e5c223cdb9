// Sets of archives behind http:// and https://: which there are, and their reader.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/private_api.h"
#include "millrace/reader.h"
#include "pipeline/readers/set_index.h"
#include "pipeline/remote/fetch.h"
#include "pipeline/remote/shard_cache.h"

namespace millrace::pipeline {

/// An archive of a remote set.
struct RemoteShard {
  Url url;
  SetIndex::Shard listed;  ///< of set.index; otherwise name and size only
  bool indexed = false;    ///< `listed` is complete
  bool own = false;        ///< nothing would show a change, so that only this process may use it
  std::string key;         ///< names this content in the cache
  std::string version{};   ///< of an archive that is not indexed: its ETag or time, if it has one
};

/// Converts an error at the opening of a set: errors that the user has to fix are DataErrors.
[[noreturn]] void rethrow_at_open(const FetchError& error);

/// Resolves a remote data.path: lists its archives, and says how each is fetched into the cache.
class MILLRACE_PRIVATE_API RemoteSet {
 public:
  /// Finds the archives of `options.path`: a folder with a set.index, archives that braces name, or
  /// those that a bucket lists.
  explicit RemoteSet(const DataOptions& options);
  /// Removes what only this process may use.
  ~RemoteSet();
  RemoteSet(const RemoteSet&) = delete;
  RemoteSet& operator=(const RemoteSet&) = delete;

  const std::vector<RemoteShard>& shards() const { return shards_; }
  const std::vector<std::string>& classes() const { return classes_; }
  /// The names of the archives have selected the split already.
  bool of_split() const { return of_split_; }

  /// Returns an archive of the cache, fetched if need be; it stays there until the descriptor is
  /// closed. With `checked`, compares the SHA-256 of one that was there already.
  base::Descriptor fetch(const RemoteShard& shard, const ShardCache::LetGo& let_go,
                         bool checked = false);
  /// Does the same without waiting for anything but its own transfer, which it does not repeat.
  /// Returns none, or throws, where that does not suffice.
  base::Descriptor fetch_ahead(const RemoteShard& shard);
  /// Ends all transfers.
  void close() { closing_.store(true); }
  /// Returns the content of an archive's index file.
  std::string fetch_index(const RemoteShard& shard);
  /// Writes a part of an archive to `out`, which has room for it, and returns its header.
  HttpHeader fetch_part(const RemoteShard& shard, FetchPart part, std::uint8_t* out);
  /// Returns the path of an archive in the cache.
  std::string path_of(const RemoteShard& shard) const { return cache_.path_of(shard.key); }
  FetchTotals totals() const { return fetcher_.totals(); }

 private:
  void find(const DataOptions& options);
  void read_index(const Url& folder, const std::string& text, const std::string& split);
  void name(const Url& folder, const std::vector<std::string>& names);
  void list(const Url& folder, const DataOptions& options);
  void add(const Url& folder, const std::string& name, std::uint64_t size,
           const std::string& identity);
  std::string key_of(const Url& url, const std::string& identity) const;
  void read_classes(const Url& folder);

  base::Descriptor fetch(const RemoteShard& shard, const ShardCache::LetGo& let_go, bool checked,
                         bool wait);

  std::atomic<bool> closing_{false};
  Fetcher fetcher_;
  ShardCache cache_;
  std::vector<RemoteShard> shards_;
  std::vector<std::string> classes_;
  bool of_split_ = true;
};

/// Opens a remote set: with one request if it has a set.index. Archives are fetched whole, into the
/// cache that all processes share, when their first sample is read; or samples one by one, by
/// ranges. Samples, their order, labels and fingerprint are those of the same archives on a disk.
/// Throws DataError for a set that is missing or wrong, FetchError for one that cannot be reached,
/// and UsageError for a cache that is too small.
MILLRACE_PRIVATE_API std::unique_ptr<Reader> open_remote_tar(const DataOptions& options);

}  // namespace millrace::pipeline
