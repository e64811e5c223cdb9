// POSIX calls behind AtomicFile.
#include "pipeline/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "pipeline/error.h"

namespace millrace {
namespace {

/// A rename lasts through a power cut only once its folder is on the disk as well. Some file
/// systems cannot do that; the file itself is complete all the same.
void sync_folder(const std::filesystem::path& folder) {
  const int directory =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  fsync(directory);
  close(directory);
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path), temporary_(path.string() + ".tmp-" + std::to_string(getpid())) {
  file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail("created");
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
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renamed");
  close(file_);
  file_ = -1;
  sync_folder(path_.parent_path());
}

void AtomicFile::fail(const char* doing) const {
  const int reason = errno;
  throw RunError(
      path_.string() + " cannot be " + doing + ": " + std::generic_category().message(reason),
      reason == ENOSPC || reason == EDQUOT ? "free some space and run again"
                                           : "check the folder and who may write there");
}

}  // namespace millrace
