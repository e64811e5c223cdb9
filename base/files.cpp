// Opens, reads and checks the files of a data set.
#include "base/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "millrace/error.h"

namespace millrace::base {

void require_resources(std::string_view path, int error) {
  if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS) return;
  throw RunError(fmt::format("{}: cannot be opened: {}", path, std::strerror(error)),
                 error == EMFILE ? "allow more open files: ulimit -n"
                                 : "other programs have what it takes: end some, or wait");
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

bool set_path(Location& location, std::string_view path) {
  if (path.size() >= location.path.size()) return false;
  *std::copy(path.begin(), path.end(), location.path.begin()) = '\0';
  return true;
}

Sample read_located(const Location& location, int descriptor, Buffer& scratch) {
  if (location.size >= kTooLong)
    throw DataError(fmt::format("{}: too long for an image", location.path.data()),
                    "files of 4 GiB and more cannot be samples; or set loader.on_error=skip");
  // One byte more reveals a whole file that is longer than expected.
  const std::size_t wanted = location.size + (location.whole_file ? 1 : 0);
  std::uint8_t* bytes = scratch.reserve(wanted);
  const std::size_t count =
      read_at(descriptor, bytes, wanted, location.offset, location.path.data());
  if (count == location.size) return {{bytes, location.size}, location.label};
  struct stat status {};
  fstat(descriptor, &status);
  throw DataError(
      fmt::format("{}: changed while the set is in use: {} bytes, listed with {}{}",
                  location.path.data(), status.st_size, location.whole_file ? "" : "at least ",
                  location.offset + location.size),
      "leave the set alone while it is used; start again to list it anew");
}

Sample read_located(const Location& location, Buffer& scratch) {
  return read_located(location, open_regular(location.path.data()).descriptor.get(), scratch);
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

}  // namespace millrace::base
