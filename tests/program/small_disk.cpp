// Mounts a tmpfs in a mount namespace of this process.
#include "tests/program/small_disk.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

/// Enters namespaces in which this process may mount. Returns why it cannot.
std::string enter() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return std::strerror(errno);
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", fmt::format("{0} {0} 1", user));
    write_file("/proc/self/gid_map", fmt::format("{0} {0} 1", group));
  }
  // Otherwise the mounts would be seen outside.
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return std::strerror(errno);
  const std::string folder = fs::temp_directory_path().string();
  if (mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=4k") != 0) return std::strerror(errno);
  umount2(folder.c_str(), MNT_DETACH);
  return {};
}

void require(bool done, const fs::path& folder) {
  if (!done)
    throw std::runtime_error(fmt::format("{}: tmpfs: {}", folder.string(), std::strerror(errno)));
}

}  // namespace

const std::string& SmallDisk::refusal() {
  static const std::string reason = enter();
  return reason;
}

SmallDisk::SmallDisk(const fs::path& folder, const std::string& options) : folder_(folder) {
  fs::create_directories(folder_);
  require(mount("tmpfs", folder_.c_str(), "tmpfs", 0, ("mode=700," + options).c_str()) == 0,
          folder_);
}

SmallDisk::~SmallDisk() { umount2(folder_.c_str(), MNT_DETACH); }

void SmallDisk::change(const std::string& options, bool read_only) {
  unsigned long flags = MS_REMOUNT;
  if (read_only) flags |= MS_RDONLY;
  require(mount("tmpfs", folder_.c_str(), "tmpfs", flags, options.c_str()) == 0, folder_);
}

}  // namespace millrace::program_test
