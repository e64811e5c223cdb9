// Helpers of all work on data sets: a parallel loop, and files that appear when complete.

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/descriptor.h"
#include "base/folder.h"
#include "millrace/error.h"
#include "pipeline/readers/mapped_file.h"
#include "tools/data/data.h"

namespace millrace::tools {

// Distributes pieces of a loop over threads.

void parallel_for(std::uint64_t count, std::uint64_t piece, int threads, const Progress& progress,
                  const std::function<void(std::uint64_t begin, std::uint64_t end)>& body) {
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::uint64_t done = 0;
  std::exception_ptr error;

  const auto work = [&] {
    while (true) {
      const std::uint64_t begin = next.fetch_add(piece);
      if (begin >= count) return;
      const std::uint64_t end = std::min(begin + piece, count);
      try {
        body(begin, end);
        const std::lock_guard lock(mutex);
        done += end - begin;
        if (progress) progress(done, count);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };

  const unsigned wanted =
      threads > 0 ? static_cast<unsigned>(threads) : std::thread::hardware_concurrency();
  {
    std::vector<std::jthread> helpers;
    for (unsigned i = 1; i < wanted; ++i) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

// Writes files through a temporary name.

namespace {

/// Removes the temporary file unless it was renamed.
class Partial {
 public:
  explicit Partial(std::string path) : path_(std::move(path)) {}
  ~Partial() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;
  const char* path() const { return path_.c_str(); }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

[[noreturn]] void fail(const std::string& path) {
  const int error = errno;
  throw RunError(fmt::format("{}: cannot be written: {}", path, std::strerror(error)),
                 error == ENOSPC || error == EDQUOT || error == EFBIG
                     ? "free some space, or choose a folder on another disk"
                     : "check the folder's permissions");
}

bool holds(const std::string& path, std::span<const std::uint8_t> bytes) {
  const pipeline::MappedFile file = pipeline::MappedFile::map(path);
  return std::equal(bytes.begin(), bytes.end(), file.bytes().begin(), file.bytes().end());
}

}  // namespace

std::string partial_name(const std::string& file_name) { return "." + file_name + ".partial"; }

void write_file(const std::string& path, std::span<const std::uint8_t> bytes) {
  const std::filesystem::path target = path;
  Partial partial(target.parent_path() / partial_name(target.filename()));
  const base::Descriptor file(open(partial.path(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) fail(path);
  while (!bytes.empty()) {
    const ssize_t count = write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  if (rename(partial.path(), path.c_str()) != 0) fail(path);
  partial.keep();
}

void write_or_match(const std::string& path, std::span<const std::uint8_t> bytes, bool force) {
  if (!force && base::exists(path)) {
    if (holds(path, bytes)) return;
    throw RunError(fmt::format("{}: already exists with other contents", path),
                   "choose another folder, or overwrite it with --force");
  }
  write_file(path, bytes);
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw RunError(fmt::format("{}: cannot be created: {}", path, error.message()),
                   "check the path and its permissions");
}

// Checks what an output folder holds.

void prepare_folder(const std::string& path, const std::vector<std::string>& names, bool force) {
  namespace fs = std::filesystem;
  if (path.empty()) throw UsageError("no folder given", "name one: millrace data make digits DIR");
  std::error_code error;
  if (const fs::file_status status = fs::status(path, error);
      fs::exists(status) && !fs::is_directory(status))
    throw RunError(fmt::format("{}: already exists and is not a folder", path),
                   "choose another name");
  make_folder(path);
  if (force) return;

  std::unordered_set<std::string> ours;
  for (const std::string& name : names) {
    const fs::path file = name;
    ours.insert(name);
    ours.insert((file.parent_path() / partial_name(file.filename())).string());
  }
  fs::recursive_directory_iterator entry(path, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_directory(unknown)) continue;
    const std::string name = entry->path().lexically_relative(path).string();
    if (!ours.contains(name))
      throw RunError(fmt::format("{}: already holds other files: {}", path, name),
                     "choose an empty or new folder, or use this one with --force");
  }
  if (error)
    throw RunError(fmt::format("{}: cannot be listed: {}", path, error.message()),
                   "check the folder's permissions");
}

}  // namespace millrace::tools
