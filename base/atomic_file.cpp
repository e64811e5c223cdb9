#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "millrace/error.h"

namespace millrace::base {

namespace {

constexpr std::string_view kMark = ".tmp-";  ///< followed by the writer's process id

/// Makes a rename survive a power cut, which needs the folder on disk as well. Some file systems
/// cannot do that; the file itself is complete all the same.
void sync_folder(const std::filesystem::path& folder) {
  const int directory =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  fsync(directory);
  close(directory);
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path), temporary_(path.string() + std::string(kMark) + std::to_string(getpid())) {
  // Replaces what a killed process of the same id has left. Never follows a link.
  unlink(temporary_.c_str());
  file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) fail("created");
  flock(file_, LOCK_EX | LOCK_NB);  // marks the writer as alive, where locks work
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  close(file_);
  unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (fsync(file_) != 0) fail("written to the disk");
  replace();
  sync_folder(path_.parent_path());
}

void AtomicFile::replace() {
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renamed");
  close(file_);
  file_ = -1;
}

void AtomicFile::fail(const char* doing) const {
  const int reason = errno;
  throw RunError(
      path_.string() + " cannot be " + doing + ": " + std::generic_category().message(reason),
      reason == ENOSPC || reason == EDQUOT ? "free some space and run again"
                                           : "check the folder and its write permissions");
}

void remove_stale_temporaries(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const std::size_t mark = name.rfind(kMark);
    if (mark == std::string::npos || !std::filesystem::is_regular_file(entry.symlink_status(error)))
      continue;
    const std::string_view pid = std::string_view(name).substr(mark + kMark.size());
    if (pid.empty() || pid.find_first_not_of("0123456789") != std::string_view::npos) continue;
    const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) unlink(entry.path().c_str());
    close(file);
  }
}

}  // namespace millrace::base
