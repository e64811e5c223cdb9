// Keeps the list of a shard cache's own files.
#include "pipeline/remote/shard_list.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "base/atomic_file.h"
#include "base/folder.h"
#include "base/open_file.h"
#include "base/text.h"
#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

constexpr std::string_view kHeader = "files that this shard cache of millrace wrote\n";
constexpr std::size_t kDigits = 32;
/// Longest list that is read, of two million names.
constexpr std::uint64_t kMaxListBytes = std::uint64_t{64} << 20;
/// Fewest names for which a list is shortened.
constexpr std::size_t kWorthCompacting = 1000;

bool is_name(std::string_view text) {
  return text.size() == kDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string_view file_name(const std::string& path) {
  return std::string_view(path).substr(path.rfind('/') + 1);
}

/// Returns whether a version without lists may have given a file this name. On a file system
/// without locks, a file that is being filled has its process's name behind the digits.
bool is_of_old_version(std::string_view file) {
  if (!digits_of_shard(file).empty()) return true;
  if (!file.ends_with(kShardPartEnding) || !is_name(file.substr(0, kDigits))) return false;
  const std::string_view process =
      file.substr(kDigits, file.size() - kDigits - kShardPartEnding.size());
  return process.starts_with('-') &&
         process.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

}  // namespace

std::string shard_name(std::string_view key) {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string_view digits_of_shard(std::string_view file) {
  const std::string_view digits = file.substr(0, kDigits);
  const std::string_view ending = file.substr(digits.size());
  return is_name(digits) && (ending == kShardEnding || ending == kShardPartEnding)
             ? digits
             : std::string_view();
}

ShardList::ShardList(const std::string& folder) : folder_(folder), path_(folder + "/" + kFile) {}

void ShardList::fail(const char* doing) const {
  const int reason = errno;
  throw RunError(
      fmt::format("data.remote.cache: {} cannot be {}: {}", path_, doing, std::strerror(reason)),
      reason == ENOSPC || reason == EDQUOT
          ? "free some space, or set data.remote.cache"
          : "check the folder, or name another one: data.remote.cache=DIR");
}

/// Opens the list; returns none if there is none. Never waits for a FIFO.
base::Descriptor ShardList::open_list(int flags) const {
  const auto refuse = [&] {
    throw UsageError(fmt::format("data.remote.cache: {} is not the list of a shard cache", path_),
                     "name another folder: data.remote.cache=DIR");
  };
  struct stat status {};
  if (lstat(path_.c_str(), &status) != 0) {
    if (errno != ENOENT) fail("opened");
    if ((flags & O_CREAT) == 0) return {};
  } else if (!S_ISREG(status.st_mode)) {
    refuse();
  }
  base::Descriptor file(open(path_.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) {
    if (errno == ENOENT) return file;
    base::require_resources(path_, errno);
    fail("opened");
  }
  if (fstat(file.get(), &status) != 0) fail("read");
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
      static_cast<std::uint64_t>(status.st_size) > kMaxListBytes)
    refuse();
  return file;
}

/// Returns the list behind its header; empty if there is none, or one whose writer was killed or
/// had no room before the header was complete.
std::string ShardList::text() const {
  const base::Descriptor file = open_list(O_RDONLY);
  if (!file) return {};
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail("read");
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  text.resize(base::read_at(file.get(), reinterpret_cast<std::uint8_t*>(text.data()), text.size(),
                            0, path_.c_str()));
  if (kHeader.starts_with(text)) return text == kHeader ? text : std::string();
  if (!text.starts_with(kHeader))
    throw UsageError(fmt::format("data.remote.cache: {} is not the list of a shard cache", path_),
                     "name another folder: data.remote.cache=DIR");
  return text;
}

bool ShardList::is_there() const { return !text().empty(); }

/// Returns the names of the folder's files, which all are a shard cache's, or throws UsageError.
std::vector<std::string> ShardList::names_in_folder() const {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder_.c_str()), closedir);
  std::vector<std::string> names;
  if (listing == nullptr) return names;  // reported when an archive of it is needed
  const auto is_file = [&](const char* name) {
    struct stat status {};
    if (fstatat(dirfd(listing.get()), name, &status, AT_SYMLINK_NOFOLLOW) != 0)
      return errno == ENOENT;  // another process has renamed or removed it
    return S_ISREG(status.st_mode);
  };
  std::string foreign, first;
  bool locked = false;
  while (const dirent* entry = readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || name == kFile) continue;
    if (name == kLockFile && is_file(entry->d_name)) {
      locked = true;
    } else if (!is_of_old_version(name) || !is_file(entry->d_name)) {
      foreign = name;
    } else {
      first = name;
      if (const std::string_view digits = digits_of_shard(name); !digits.empty())
        names.emplace_back(digits);
    }
  }
  if (foreign.empty() && !locked) foreign = first;  // every version makes the lock first
  if (foreign.empty()) return names;
  throw UsageError(fmt::format("data.remote.cache: {} holds {}, which no cache of millrace wrote",
                               folder_, base::printable(foreign)),
                   "name an empty or a new folder: data.remote.cache=DIR");
}

void ShardList::check() const {
  if (is_there()) return;
  try {
    names_in_folder();
  } catch (const UsageError&) {
    if (!is_there()) throw;  // made meanwhile, with files that this process saw before the lock
  }
}

void ShardList::add(const std::vector<std::string>& names) const {
  std::string more;
  const std::string before = text();
  if (before.empty()) {
    more = kHeader;
    for (const std::string& name : names_in_folder()) more += name + "\n";
  } else if (!before.ends_with('\n')) {
    more = "\n";  // its writer was killed, or had no room
  }
  const base::Descriptor file = open_list(O_WRONLY | O_CREAT | O_APPEND);
  if (before.empty() && ftruncate(file.get(), 0) != 0) fail("written");
  for (const std::string& name : names) more += name + "\n";
  for (std::string_view rest = more; !rest.empty();) {
    const ssize_t count = write(file.get(), rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("written");
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  // Without it, a crash of the system could leave an archive that is not listed.
  if (fdatasync(file.get()) != 0) fail("written to the disk");
}

std::set<std::string, std::less<>> ShardList::names() const {
  std::set<std::string, std::less<>> names;
  const std::string all = text();
  std::string_view rest = all;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (is_name(rest.substr(0, end))) names.emplace(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

bool ShardList::has(const std::string& path) const {
  return names().contains(digits_of_shard(file_name(path)));
}

void ShardList::compact() const {
  const auto all = names();
  if (all.size() < kWorthCompacting) return;
  std::size_t kept = 0;
  std::string text(kHeader);
  for (const std::string& name : all) {
    // In this order: an archive that is completed meanwhile changes from one to the other.
    const std::string stem = folder_ + "/" + name;
    if (!base::exists(stem + std::string(kShardPartEnding)) &&
        !base::exists(stem + std::string(kShardEnding)))
      continue;
    text += name + "\n";
    ++kept;
  }
  if (2 * kept > all.size()) return;
  base::AtomicFile file(path_);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace millrace::pipeline
