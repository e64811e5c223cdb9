// Keeps fetched archives in a folder.
#include "pipeline/remote/shard_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "base/open_file.h"
#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr double kPause_s = 0.02;

struct stat status_of(int file) {
  struct stat status {};
  fstat(file, &status);
  return status;
}

/// Returns whether `file` is what `path` names now.
bool is_named(int file, const std::string& path) {
  const struct stat own = status_of(file);
  struct stat named {};
  return lstat(path.c_str(), &named) == 0 && own.st_ino == named.st_ino &&
         own.st_dev == named.st_dev;
}

/// Removes a file unless its owner has said keep().
class Removed {
 public:
  explicit Removed(const std::string& path) : path_(path) {}
  ~Removed() {
    if (!kept_) unlink(path_.c_str());
  }
  Removed(const Removed&) = delete;
  Removed& operator=(const Removed&) = delete;
  void keep() { kept_ = true; }

 private:
  const std::string& path_;
  bool kept_ = false;
};

/// Removes slashes at the end, behind which a link would be followed.
ShardCacheOptions with_plain_folder(ShardCacheOptions options) {
  while (options.folder.size() > 1 && options.folder.ends_with('/')) options.folder.pop_back();
  return options;
}

}  // namespace

std::string default_shard_cache() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/millrace/shards";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/millrace/shards";
  return {};
}

std::string process_name() {
  static const std::uint64_t drawn = [] {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }();
  return fmt::format("{}-{:016x}", getpid(), drawn);
}

ShardCache::ShardCache(ShardCacheOptions options, RetryClock& clock)
    : options_(with_plain_folder(std::move(options))), list_(options_.folder), clock_(clock) {
  const std::string& folder = options_.folder;
  if (folder.empty())
    throw UsageError("data.remote.cache is not set, and there is no home folder",
                     "set data.remote.cache=DIR");
  std::error_code ignored;
  fs::create_directories(fs::path(folder).parent_path(), ignored);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail(folder, "made");
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) fail(folder, "read");
  const std::string hint = "name another folder: data.remote.cache=DIR";
  if (!S_ISDIR(status.st_mode))
    throw RunError(fmt::format("data.remote.cache: {} is {}, not a folder", folder,
                               S_ISLNK(status.st_mode) ? "a link" : "a file"),
                   hint);
  if (status.st_uid != geteuid())
    throw RunError(fmt::format("data.remote.cache: {} belongs to another user", folder), hint);
  if ((status.st_mode & 0077) != 0)
    throw RunError(fmt::format("data.remote.cache: {} is open to others (mode {:04o})", folder,
                               status.st_mode & 07777),
                   "chmod 700 it, or name another folder");
  list_.check();
  // Shows whether there are locks before an archive is named by that. A folder that cannot be
  // written is fine as long as nothing has to be fetched.
  const std::string guard = guard_path();
  const base::Descriptor file(
      open(guard.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (file) lock(file.get(), LOCK_SH, guard);
}

std::string ShardCache::path_of(const std::string& key) const {
  return fmt::format("{}/{}{}", options_.folder, shard_name(key), kShardEnding);
}

std::string ShardCache::guard_path() const {
  return fmt::format("{}/{}", options_.folder, kLockFile);
}

/// Protects the list and the sum of sizes until it is closed.
base::Descriptor ShardCache::guard() {
  const std::string path = guard_path();
  base::Descriptor file = open_own(path, O_RDWR | O_CREAT);
  wait_for_lock(file.get(), LOCK_EX, path);
  return file;
}

void ShardCache::remove(const std::string& path) const {
  if (!list_.has(path))
    throw RunError(
        fmt::format("data.remote.cache: {} is damaged, and no cache of millrace wrote it", path),
        "move it away, or name another folder: data.remote.cache=DIR");
  unlink(path.c_str());
}

void ShardCache::drop_damaged(const std::string& key) const { remove(path_of(key)); }

/// Opens the file to be filled, which is listed before it is made.
base::Descriptor ShardCache::open_part(const std::string& part, const std::string& path) {
  base::Descriptor file = open_own(part, O_RDWR);
  if (file && list_.has(part)) return file;
  const base::Descriptor held = guard();
  file = open_own(part, O_RDWR);
  if (file && !list_.has(part))
    throw RunError(
        fmt::format("data.remote.cache: {} is in the way: no cache of millrace wrote it", part),
        "move it away, or name another folder: data.remote.cache=DIR");
  std::vector<std::string> names;
  for (const std::string* one : {&part, &path})
    if (!list_.has(*one))
      names.emplace_back(digits_of_shard(std::string_view(*one).substr(one->rfind('/') + 1)));
  if (!names.empty()) list_.add(names);
  return open_own(part, O_RDWR | O_CREAT);
}

void ShardCache::fail(const std::string& path, const char* doing) const {
  const int reason = errno;
  throw RunError(
      fmt::format("data.remote.cache: {} cannot be {}: {}", path, doing, std::strerror(reason)),
      reason == ENOSPC || reason == EDQUOT
          ? "free some space, or set data.remote.cache_bytes or data.remote.cache"
          : "check the folder, or name another one: data.remote.cache=DIR");
}

/// Opens a file of the folder; returns none if it does not exist.
base::Descriptor ShardCache::open_own(const std::string& path, int flags) const {
  base::Descriptor file(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) {
    if (errno == ENOENT && (flags & O_CREAT) == 0) return file;
    base::require_resources(path, errno);
    fail(path, "opened");
  }
  const struct stat status = status_of(file.get());
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid())
    throw RunError(fmt::format("data.remote.cache: {} is not a file of yours", path),
                   "remove it, or name another folder: data.remote.cache=DIR");
  return file;
}

/// Locks a file without waiting. Returns false if another holds it.
bool ShardCache::lock(int file, int kind, const std::string& path) {
  if (!locks_.load(std::memory_order_relaxed)) return true;
  while (flock(file, kind | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno == EINTR) continue;
    // ENOLCK comes from a network file system without a lock daemon; once a lock was held, it is a
    // shortage that passes.
    const bool none = errno == ENOSYS || errno == EOPNOTSUPP ||
                      (errno == ENOLCK && !has_locked_.load(std::memory_order_relaxed));
    if (!none) fail(path, "locked");
    if (locks_.exchange(false) && options_.warn)
      options_.warn(
          fmt::format("{}: the file system has no locks ({}): processes do not share "
                      "what they fetch, and nothing is evicted",
                      path, std::strerror(errno)));
    return true;
  }
  has_locked_.store(true, std::memory_order_relaxed);
  return true;
}

void ShardCache::pause() const {
  clock_.sleep(kPause_s, options_.stop);
  if (options_.stop != nullptr && options_.stop->load())
    throw Error(Exit::interrupted, "interrupted while waiting for data.remote.cache");
}

/// Waits for a lock that others hold for a moment only.
void ShardCache::wait_for_lock(int file, int kind, const std::string& path) {
  const double begin = clock_.now_s();
  while (!lock(file, kind, path)) {
    if (clock_.now_s() - begin > options_.deadline_s)
      throw RunError(fmt::format("data.remote.cache: {} stays locked by another process", path),
                     "end the process that holds it, if it hangs");
    pause();
  }
}

/// Opens an archive that is there, and protects it from eviction. Returns none otherwise.
base::Descriptor ShardCache::open_complete(const std::string& path, std::uint64_t size) {
  while (true) {
    base::Descriptor file = open_own(path, O_RDONLY);
    if (!file) return file;
    // Whoever evicts it holds it for a moment.
    wait_for_lock(file.get(), LOCK_SH, path);
    const struct stat status = status_of(file.get());
    if (status.st_nlink == 0 || !is_named(file.get(), path)) continue;
    if (static_cast<std::uint64_t>(status.st_size) != size) {
      remove(path);
      continue;
    }
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    futimens(file.get(), now);  // the time of its last use
    found_.fetch_add(1, std::memory_order_relaxed);
    return file;
  }
}

/// Returns the file to fill, locked; or none, with the archive that another process has completed
/// meanwhile. Without `wait`, returns neither while another process fills it.
base::Descriptor ShardCache::claim(const std::string& part, const std::string& path,
                                   std::uint64_t size, const LetGo& let_go, bool wait,
                                   base::Descriptor& complete) {
  double since = clock_.now_s();
  timespec written{};
  while (true) {
    base::Descriptor file = open_part(part, path);
    const bool mine = lock(file.get(), LOCK_EX, part);
    if (mine && !is_named(file.get(), part)) continue;  // completed, or taken away
    complete = open_complete(path, size);
    if (complete) {
      if (mine) unlink(part.c_str());
      return {};
    }
    if (mine) return file;
    if (!wait) return {};
    const timespec last = status_of(file.get()).st_mtim;
    file.close();
    if (std::tie(last.tv_sec, last.tv_nsec) != std::tie(written.tv_sec, written.tv_nsec)) {
      written = last;
      since = clock_.now_s();
    }
    // Whoever fills it gives up after one deadline without progress.
    if (clock_.now_s() - since > 2 * options_.deadline_s)
      throw RunError(
          fmt::format("data.remote.cache: {} is held by a process that does not fill it", part),
          "end that process if it hangs");
    // It may wait for the room of archives that are not being read here.
    if (options_.limit != 0 && let_go) let_go();
    pause();
  }
}

base::Descriptor ShardCache::get(const std::string& key, std::uint64_t size, const Fill& fill,
                                 const LetGo& let_go, bool wait) {
  const std::string path = path_of(key);
  base::Descriptor complete = open_complete(path, size);
  if (complete) return complete;
  // Without locks, two processes must not write to one file.
  const std::string writer = locks_.load(std::memory_order_relaxed)
                                 ? key
                                 : fmt::format("{}\n{} {}", key, process_name(), unshared_++);
  const std::string part =
      fmt::format("{}/{}{}", options_.folder, shard_name(writer), kShardPartEnding);
  base::Descriptor file = claim(part, path, size, let_go, wait, complete);
  if (complete || !file) return complete;
  Removed unfinished(part);
  if (!make_room(part, file.get(), size, let_go, wait)) return {};
  fill(file.get(), part);
  if (fdatasync(file.get()) != 0) fail(part, "written to the disk");
  // The lock goes along with the file; it is weakened, so that other processes can share it.
  if (std::rename(part.c_str(), path.c_str()) != 0) fail(part, "renamed");
  unfinished.keep();
  filled_.fetch_add(1, std::memory_order_relaxed);
  wait_for_lock(file.get(), LOCK_SH, path);
  if (status_of(file.get()).st_nlink == 0) return get(key, size, fill, let_go, wait);  // evicted
  return file;
}

void ShardCache::drop(const std::string& key) {
  const std::string path = path_of(key);
  const base::Descriptor file = open_own(path, O_RDWR);
  if (file && lock(file.get(), LOCK_EX, path) && is_named(file.get(), path)) remove(path);
}

// Keeps the limit.
namespace {

struct Kept {
  std::string path;
  std::uint64_t bytes;
  std::int64_t used_ns;
};

/// Returns the listed archives of a folder, complete or not, least recently used first.
std::vector<Kept> archives_in(const std::string& folder, const ShardList& list) {
  std::vector<Kept> all;
  const auto own = list.names();
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.c_str()), closedir);
  if (listing == nullptr) return all;
  while (const dirent* entry = readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (!own.contains(digits_of_shard(name))) continue;
    struct stat status {};
    std::string path = folder + "/" + std::string(name);
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    all.push_back({std::move(path), static_cast<std::uint64_t>(status.st_size),
                   std::int64_t{status.st_atim.tv_sec} * 1'000'000'000 + status.st_atim.tv_nsec});
  }
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) {
    return std::pair(a.used_ns, a.path) < std::pair(b.used_ns, b.path);
  });
  return all;
}

}  // namespace

/// Gives `file` its length if it fits in the limit, evicting unused archives. Returns false and
/// the bytes in use if it does not fit.
bool ShardCache::try_room(const std::string& part, int file, std::uint64_t size,
                          std::uint64_t& used) {
  const base::Descriptor held = guard();
  if (locks_.load(std::memory_order_relaxed)) list_.compact();
  std::vector<Kept> all = archives_in(options_.folder, list_);
  std::erase_if(all, [&](const Kept& one) { return one.path == part; });
  used = 0;
  for (const Kept& one : all) used += one.bytes;
  for (const Kept& one : all) {
    const bool left_over = one.path.ends_with(kShardPartEnding);
    if (!left_over && (options_.limit == 0 || used + size <= options_.limit)) continue;
    if (!locks_.load(std::memory_order_relaxed)) break;
    const base::Descriptor other = open_own(one.path, O_RDWR);
    if (!other || !lock(other.get(), LOCK_EX, one.path) || !is_named(other.get(), one.path))
      continue;
    unlink(one.path.c_str());
    used -= one.bytes;
  }
  if (options_.limit != 0 && used + size > options_.limit) return false;
  const auto length = static_cast<off_t>(size);
  if (ftruncate(file, 0) != 0) fail(part, "written");
  // Space that is reserved at once takes less time to write to, and a full disk is noticed before
  // anything is fetched. Some file systems cannot do it.
  while (size > 0 && fallocate(file, 0, 0, length) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) break;
    fail(part, "written");
  }
  if (ftruncate(file, length) != 0) fail(part, "written");
  return true;
}

bool ShardCache::make_room(const std::string& part, int file, std::uint64_t size,
                           const LetGo& let_go, bool wait) {
  if (options_.limit != 0 && size > options_.limit)
    throw RunError(fmt::format("data.remote.cache_bytes={}: an archive of {} bytes does not fit",
                               options_.limit, size),
                   fmt::format("set data.remote.cache_bytes={} or more", size));
  const double begin = clock_.now_s();
  for (std::uint64_t used = 0; !try_room(part, file, size, used);) {
    if (!wait) return false;
    if (let_go && let_go()) continue;
    if (clock_.now_s() - begin > options_.deadline_s)
      throw RunError(
          fmt::format("data.remote.cache: {} is full: {} of data.remote.cache_bytes={} are in use",
                      options_.folder, used, options_.limit),
          fmt::format("set data.remote.cache_bytes={} or more, or name a folder of its own",
                      used + size));
    pause();
  }
  return true;
}

}  // namespace millrace::pipeline
