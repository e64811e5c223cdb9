#include "pipeline/readers/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "pipeline/error.h"

namespace millrace {

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

OpenFile open_regular(const char* path) {
  OpenFile file{Descriptor(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0};
  struct stat status {};
  if (file.descriptor.get() < 0 || fstat(file.descriptor.get(), &status) != 0) {
    const int error = errno;
    throw DataError(fmt::format("{}: cannot be read: {}", path, std::strerror(error)),
                    error == ENOENT ? "the file was removed, or a link points nowhere"
                                    : "check the file's permissions and the disk");
  }
  if (!S_ISREG(status.st_mode))
    throw DataError(fmt::format("{}: not a regular file", path),
                    "a data set is made of files; remove it or move it away");
  file.size = static_cast<std::uint64_t>(status.st_size);
  return file;
}

void require_folder(const std::string& path) {
  const std::string hint =
      "check data.path, or make a set: millrace data make digits " + (path.empty() ? "DIR" : path);
  if (path.empty()) throw DataError("data.path is empty", hint);
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    throw DataError(fmt::format("{}: {}", path, std::strerror(errno)), hint);
  if (!S_ISDIR(status.st_mode))
    throw DataError(fmt::format("{}: not a folder", path),
                    "data.path names the folder that holds the data set");
}

bool exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace millrace
