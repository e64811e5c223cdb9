// Lock file with flock(2).
#include "study/records/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "millrace/error.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

/// Returns whether `path` still leads to the open file. Another process may have moved its folder.
bool is_at(int file, const fs::path& path) {
  struct stat held {};
  struct stat there {};
  return fstat(file, &held) == 0 && stat(path.c_str(), &there) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

/// Returns the text that the holder has written about itself.
std::string holder(int file) {
  std::array<char, 300> text{};
  const ssize_t size = pread(file, text.data(), text.size(), 0);
  const std::string line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return line.empty() ? "another process" : line.substr(0, line.find('\n'));
}

void sign(int file) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string text = fmt::format("pid {} on host {}\n", getpid(), host.data());
  // The lock holds even if a full disk keeps the text out.
  if (ftruncate(file, 0) == 0) static_cast<void>(!pwrite(file, text.data(), text.size(), 0));
}

}  // namespace

RunLock::RunLock(const fs::path& directory, std::chrono::milliseconds patience) {
  using namespace std::chrono_literals;
  const fs::path path = directory / kFile;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    base::Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (file.get() < 0)
      throw RunError(fmt::format("{} cannot be written: {}", path.string(), std::strerror(errno)),
                     "choose another place: --run DIR");
    while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if (error == EINTR) continue;
      if (error != EWOULDBLOCK)
        throw UsageError(
            fmt::format("{} cannot be locked: {}", path.string(), std::strerror(error)),
            "choose a directory on a file system with locks: --run DIR");
      if (std::chrono::steady_clock::now() >= deadline)
        throw UsageError(
            fmt::format("{} is in use: {} writes there", directory.string(), holder(file.get())),
            "wait until it has ended, or choose another directory: --run DIR");
      std::this_thread::sleep_for(20ms);
    }
    if (!is_at(file.get(), path)) continue;
    sign(file.get());
    file_ = std::move(file);
    return;
  }
}

bool RunLock::is_held(const fs::path& directory) {
  const base::Descriptor file(open((directory / kFile).c_str(), O_RDONLY | O_CLOEXEC));
  return file.get() >= 0 && flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void RunLock::share_with_children() { fcntl(file_.get(), F_SETFD, 0); }

}  // namespace millrace::study
