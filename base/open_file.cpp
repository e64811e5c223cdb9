#include "base/open_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "millrace/error.h"

namespace millrace::base {

void require_resources(std::string_view path, int error) {
  if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS) return;
  throw RunError(fmt::format("{}: cannot be opened: {}", path, std::strerror(error)),
                 error == EMFILE ? "allow more open files: ulimit -n"
                                 : "other programs are using up the system's open files or memory: "
                                   "close some of them, or wait");
}

OpenFile open_regular(const char* path) {
  OpenFile file{Descriptor(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0};
  struct stat status {};
  if (file.descriptor.get() < 0 || fstat(file.descriptor.get(), &status) != 0) {
    const int error = errno;
    require_resources(path, error);
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

std::size_t read_at(int descriptor, std::uint8_t* out, std::size_t size, std::uint64_t offset,
                    const char* path) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count =
        pread(descriptor, out + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw DataError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)),
                      "check the disk");
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

}  // namespace millrace::base
