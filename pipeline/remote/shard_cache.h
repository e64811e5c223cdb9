// A folder of fetched archives that all processes of a user share (data.remote.cache). An archive
// appears under its name only when it is complete and checked; the folder's limit holds over all
// processes; an archive that somebody reads is not evicted, nor is a file that no cache wrote. All
// this rests on flock(2), which the kernel releases when a process dies, so a kill leaves nothing
// to repair.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/private_api.h"
#include "pipeline/remote/fetch.h"
#include "pipeline/remote/shard_list.h"

namespace millrace::pipeline {

struct ShardCacheOptions {
  std::string folder;                       ///< created with mode 0700 if it is missing
  std::uint64_t limit = 0;                  ///< bytes of all archives together; 0: none
  double deadline_s = 120;                  ///< longest wait for room that other processes occupy
  const std::atomic<bool>* stop = nullptr;  ///< ends a wait; may be null
  /// Receives a warning if the file system has no locks. May be empty.
  std::function<void(const std::string&)> warn{};
};

/// Returns the default folder, $XDG_CACHE_HOME/millrace/shards, by default below ~/.cache; empty if
/// neither variable is set.
MILLRACE_PRIVATE_API std::string default_shard_cache();

/// Returns a name that no other process has had: its number may recur.
MILLRACE_PRIVATE_API std::string process_name();

/// May be called from many threads.
class MILLRACE_PRIVATE_API ShardCache {
 public:
  /// Writes an archive, whose length the file has already, and checks it. Throws if it cannot.
  using Fill = std::function<void(int descriptor, const std::string& path)>;
  /// Closes one archive of this process that is not being read. Returns false if there is none.
  using LetGo = std::function<bool()>;

  /// Throws RunError for a folder that cannot be made, is a link, belongs to somebody else, or is
  /// open to others, or whose files cannot be locked; UsageError for one with other files.
  explicit ShardCache(ShardCacheOptions options, RetryClock& clock = RetryClock::system());

  /// Returns the archive of this key, of `size` bytes, open and protected from eviction until the
  /// descriptor is closed. If it is not there, one process fills it and the others wait for that
  /// one; if that one dies, the next takes its place. With a limit, calls `let_go` while it waits.
  /// Throws RunError for a folder that cannot be written or has no room, for a process that neither
  /// fills the archive nor ends, and what `fill` throws. Without `wait`, returns none instead of
  /// waiting for another process or for room.
  base::Descriptor get(const std::string& key, std::uint64_t size, const Fill& fill,
                       const LetGo& let_go, bool wait = true);
  /// Removes a key's archive unless it is in use.
  void drop(const std::string& key);
  /// Removes a key's archive whose contents are wrong; processes that have it open keep it. Throws
  /// RunError if no cache wrote it.
  void drop_damaged(const std::string& key) const;
  /// Returns the path of a key's archive, whether it is there or not.
  std::string path_of(const std::string& key) const;
  const ShardCacheOptions& options() const { return options_; }
  /// Archives that get() found, and those that it had filled.
  std::uint64_t found() const { return found_.load(std::memory_order_relaxed); }
  std::uint64_t filled() const { return filled_.load(std::memory_order_relaxed); }

 private:
  base::Descriptor open_own(const std::string& path, int flags) const;
  base::Descriptor open_complete(const std::string& path, std::uint64_t size);
  base::Descriptor open_part(const std::string& part, const std::string& path);
  std::string guard_path() const;
  base::Descriptor guard();
  void remove(const std::string& path) const;
  base::Descriptor claim(const std::string& part, const std::string& path, std::uint64_t size,
                         const LetGo& let_go, bool wait, base::Descriptor& complete);
  bool make_room(const std::string& part, int file, std::uint64_t size, const LetGo& let_go,
                 bool wait);
  bool try_room(const std::string& part, int file, std::uint64_t size, std::uint64_t& used);
  bool lock(int file, int kind, const std::string& path);
  void wait_for_lock(int file, int kind, const std::string& path);
  void pause() const;
  [[noreturn]] void fail(const std::string& path, const char* doing) const;

  const ShardCacheOptions options_;
  const ShardList list_;
  RetryClock& clock_;
  std::atomic<bool> locks_{true};        ///< the file system has locks
  std::atomic<bool> has_locked_{false};  ///< a lock was held
  std::atomic<std::uint64_t> found_{0}, filled_{0};
  std::atomic<std::uint64_t> unshared_{0};  ///< archives begun without locks
};

}  // namespace millrace::pipeline
