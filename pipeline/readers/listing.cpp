// Reads index files, keeps listings in the user's cache, and walks archives.
#include "pipeline/readers/listing.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/folder.h"
#include "base/open_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/decoders/image_files.h"
#include "pipeline/readers/dali_index.h"
#include "pipeline/readers/folder.h"
#include "pipeline/readers/mapped_file.h"

namespace millrace::pipeline {
namespace {

namespace fs = std::filesystem;

/// Fewest samples for which a listing is kept: smaller archives are walked as fast.
constexpr std::size_t kWorthKeeping = 100;
/// Most bytes of all listings together; the oldest are removed.
constexpr std::uint64_t kMaxCachedBytes = std::uint64_t{512} << 20;
/// Coarsest clock of a file system (FAT's). A file that was changed more recently may change again
/// without getting another time.
constexpr std::int64_t kCoarsestClock_ns = 2'000'000'000;

/// Returns whether any later change will give the file another stamp.
bool is_settled(const FileStamp& stamp) {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  const std::int64_t now = std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  return now - std::max(stamp.mtime_ns, stamp.ctime_ns) > kCoarsestClock_ns;
}

/// Creates a folder that only this user may enter. Returns whether it is one: an own folder, no
/// link, closed to others.
bool make_private(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == geteuid() && (status.st_mode & 0022) == 0;
}

/// Returns where a listing is kept. Hosts that share a home may have different archives of one
/// path: their devices or inodes differ.
std::string listing_path(const std::string& cache, const std::string& path,
                         const FileStamp& stamp) {
  const std::string key = fmt::format("{}\n{} {}", path, stamp.device, stamp.inode);
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return fmt::format("{}/{:016x}{:016x}{}", cache, hash.high64, hash.low64, kShardIndexEnding);
}

std::string full_path(const std::string& shard) {
  std::error_code error;
  const fs::path full = fs::absolute(shard, error);
  return error ? std::string() : full.lexically_normal().string();
}

TarIndex walk_archive(const std::string& shard, bool names) {
  const MappedFile mapped = MappedFile::map(shard);
  IndexTarOptions options;
  options.names = names;
  options.passed = [&] { mapped.let_go(); };
  return index_tar(shard, mapped.bytes(), options);
}

[[noreturn]] void reject_foreign(const ShardIndex& index, const std::string& shard) {
  throw DataError(
      fmt::format("{}: the index belongs to another archive, {}", index_path(shard),
                  base::printable(index.shard)),
      fmt::format("restore the archive's name, or make the index again: millrace data index {}",
                  base::shell_word(shard)));
}

}  // namespace

ShardIndex read_shard_index(const std::string& shard, bool names) {
  const std::string path = index_path(shard);
  ShardIndex index = parse_shard_index(path, MappedFile::map(path).bytes(), names);
  if (index.shard != fs::path(shard).filename()) reject_foreign(index, shard);
  return index;
}

std::string listing_cache() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/millrace/listings";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/millrace/listings";
  return {};
}

Listings::Listings(IndexUse use, std::function<void(const std::string&)> warn)
    : use_(use), warn_(std::move(warn)) {
  if (use_ == IndexUse::automatic) cache_ = listing_cache();
}

TarIndex Listings::list(const std::string& shard, const FileStamp& now, Sha256& sha256) {
  TarIndex found;
  if (use_ != IndexUse::off &&
      (from_index(shard, now, found, sha256) || from_cache(shard, now, found)))
    return found;
  const bool keep = !cache_.empty() && is_settled(now);
  if (use_ == IndexUse::off || !from_dali_index(shard, now, keep, found)) {
    if (use_ == IndexUse::require)
      throw DataError(fmt::format("{}: the archive has no index (data.index=require)", shard),
                      "make one: millrace data index " + base::shell_word(shard));
    found = walk_archive(shard, keep);
  }
  const base::OpenFile file = base::open_regular(shard);
  const FileStamp after = stamp_of(file.descriptor.get(), shard);
  if (after.inode != now.inode || after.device != now.device || after.size != now.size ||
      after.mtime_ns != now.mtime_ns)
    throw DataError(fmt::format("{}: changed while it was opened", shard),
                    "leave the set alone while it is used, and start again");
  if (keep && after == now && found.samples.size() >= kWorthKeeping) store(shard, now, found);
  found.names = {};
  found.name_at = {};
  return found;
}

bool Listings::from_index(const std::string& shard, const FileStamp& now, TarIndex& out,
                          Sha256& sha256) {
  const std::string path = index_path(shard);
  const std::string hint = "millrace data index " + base::shell_word(shard);
  if (!base::exists(path)) return false;
  ShardIndex index;
  try {
    index = parse_shard_index(path, MappedFile::map(path).bytes());
  } catch (const DataError& error) {
    set_aside(error.what(), error.hint());
    return false;
  }
  if (index.shard != fs::path(shard).filename()) reject_foreign(index, shard);
  if (const char* how = difference(index.stamp, now)) {
    set_aside(fmt::format("{}: the index is stale: {}", path, how), "make it again: " + hint);
    return false;
  }
  if (index.tar.formats != image_formats()) {
    set_aside(path + ": the index was made with other decoders of plugins",
              "make it again with the plugins.path of the run: " + hint);
    return false;
  }
  out = std::move(index.tar);
  sha256 = index.sha256;
  return true;
}

bool Listings::from_dali_index(const std::string& shard, const FileStamp& now, bool names,
                               TarIndex& out) {
  const std::string path = dali_index_path(shard);
  if (!base::exists(path)) return false;
  try {
    const base::OpenFile file = base::open_regular(path);
    const bool older = stamp_of(file.descriptor.get(), path).mtime_ns < now.mtime_ns;
    IndexTarOptions options;
    options.names = names;
    out = list_by_dali_index(shard, older ? DaliCheck::all : DaliCheck::some, options);
    return true;
  } catch (const DataError& error) {
    set_aside(error.what(), error.hint());
    return false;
  }
}

void Listings::set_aside(const std::string& reason, const std::string& hint) {
  if (use_ == IndexUse::require) throw DataError(reason, hint);
  if (odd_++ == 0) first_odd_ = reason;
}

bool Listings::from_cache(const std::string& shard, const FileStamp& now, TarIndex& out) const {
  const std::string full = full_path(shard);
  if (cache_.empty() || full.empty()) return false;
  const std::string path = listing_path(cache_, full, now);
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
      !make_private(cache_))
    return false;
  try {
    ShardIndex index = parse_shard_index(path, MappedFile::map(path).bytes());
    if (index.shard != full || index.stamp != now || index.tar.formats != image_formats())
      return false;
    out = std::move(index.tar);
    return true;
  } catch (const DataError&) {  // walked and stored again
    return false;
  }
}

/// Stores a listing, if that is possible: a full or read-only disk does not keep a run from going.
void Listings::store(const std::string& shard, const FileStamp& now, const TarIndex& tar) {
  const std::string full = full_path(shard);
  if (full.empty()) return;
  const fs::path program = fs::path(cache_).parent_path();
  std::error_code ignored;
  fs::create_directories(program.parent_path(), ignored);
  if (!make_private(program) || !make_private(cache_)) return;
  try {
    base::AtomicFile out(listing_path(cache_, full, now));
    out.write(to_bytes({full, now, {}, tar}));
    out.replace();  // a listing that a crash has damaged is noticed by its checksums
    stored_ = true;
  } catch (const Error&) {
    cache_.clear();
  }
}

namespace {

/// Returns whether a file has the name of a listing, or of one whose writer was killed.
bool is_listing(std::string_view name) {
  constexpr std::size_t kDigits = 32;
  if (name.find_first_not_of("0123456789abcdef") != kDigits) return false;
  name.remove_prefix(kDigits);
  return name == kShardIndexEnding ||
         name.starts_with(std::string(kShardIndexEnding) + ".tmp-");  // of AtomicFile
}

/// Removes the oldest listings of a folder until the others take at most kMaxCachedBytes.
void trim(const std::string& folder) {
  struct Kept {
    fs::file_time_type written;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Kept> all;
  std::uint64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    if (!is_listing(entry->path().filename().string()) ||
        !fs::is_regular_file(entry->symlink_status(gone)))
      continue;
    Kept one{entry->last_write_time(gone), entry->file_size(gone), entry->path()};
    if (gone) continue;
    total += one.bytes;
    all.push_back(std::move(one));
  }
  std::sort(all.begin(), all.end(),
            [](const Kept& a, const Kept& b) { return a.written < b.written; });
  for (const Kept& one : all) {
    if (total <= kMaxCachedBytes) return;
    fs::remove(one.path, error);
    total -= one.bytes;
  }
}

}  // namespace

void Listings::finish() {
  if (odd_ > 0 && warn_)
    warn_(odd_ == 1 ? first_odd_ + "; the archive is read without it"
                    : fmt::format("{}; the archive and {} other archive{} are read without their "
                                  "indexes",
                                  first_odd_, odd_ - 1, odd_ == 2 ? "" : "s"));
  if (stored_) trim(cache_);
}

}  // namespace millrace::pipeline
