// Looks at files before it opens them, and bounds what is read.

#include "base/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "millrace/error.h"

namespace millrace::base {
namespace {

namespace fs = std::filesystem;

const char* kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    case S_IFCHR:
    case S_IFBLK:
      return "a device";
    case S_IFDIR:
      return "a folder";
    case S_IFLNK:
      return "a link";
    default:
      return "no file";
  }
}

/// Returns a name that opens what was looked at, whatever its own name leads to by now.
std::string path_of(const Descriptor& found) {
  return fmt::format("/proc/self/fd/{}", found.get());
}

constexpr const char* kAway = "remove it or move it away";

/// Holes cost their author nothing, and their reader as much as data.
void refuse_holes(const Descriptor& opened, off_t size, const fs::path& file) {
  if (static_cast<std::uint64_t>(size) <= kLargestHoles) return;
  std::uint64_t holes = 0;
  for (off_t at = 0; at < size;) {
    const off_t data = lseek(opened.get(), at, SEEK_DATA);
    const off_t end = data >= 0 ? data : errno == ENXIO ? size : at;  // or the kernel cannot tell
    holes += static_cast<std::uint64_t>(end - at);
    if (holes > kLargestHoles)
      throw DataError(fmt::format("{}: a sparse file with more than {} GiB of holes", file.string(),
                                  kLargestHoles >> 30),
                      "restore it from a copy, or move it away");
    if (data < 0 || (at = lseek(opened.get(), data, SEEK_HOLE)) < 0) break;
  }
  lseek(opened.get(), 0, SEEK_SET);
}

[[noreturn]] void too_large(const fs::path& file, const char* what, std::uint64_t most) {
  throw DataError(
      fmt::format("{}: {} of more than {} MiB", file.string(), what, most >> 20),
      "millrace writes none of that size: restore the file from a copy, or move it away");
}

}  // namespace

OpenFile find_record(const fs::path& file) {
  // A descriptor of O_PATH opens nothing yet, so looking at a FIFO or a device has no effect.
  const Descriptor found(open(file.c_str(), O_PATH | O_CLOEXEC));
  struct stat status {};
  if (found && fstat(found.get(), &status) == 0) {
    if (!S_ISREG(status.st_mode))
      throw DataError(
          fmt::format("{}: {}, not a regular file", file.string(), kind_of(status.st_mode)), kAway);
    if (Descriptor opened(open(path_of(found).c_str(), O_RDONLY | O_CLOEXEC)); opened) {
      refuse_holes(opened, status.st_size, file);
      return {std::move(opened), static_cast<std::uint64_t>(status.st_size)};
    }
  }
  const int error = errno;
  require_resources(file.string(), error);
  errno = error;
  return {};
}

std::ifstream open_record(const fs::path& file) {
  std::ifstream in;
  if (const OpenFile found = find_record(file); found.descriptor)
    in.open(path_of(found.descriptor), std::ios::binary);
  else
    in.setstate(std::ios::failbit);  // as after an open() that failed
  return in;
}

std::string read_record(std::ifstream& in, const fs::path& file) {
  std::string text;
  std::array<char, 1 << 16> piece;
  while (in.read(piece.data(), piece.size()), in.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > kLargestRecord) too_large(file, "a record", kLargestRecord);
  }
  return text;
}

std::string read_record(const fs::path& file) {
  std::ifstream in = open_record(file);
  return read_record(in, file);
}

bool read_line(std::istream& in, std::string& line, const fs::path& file) {
  line.clear();
  std::array<char, 4096> piece;
  for (;;) {
    in.getline(piece.data(), piece.size());
    const auto count = static_cast<std::size_t>(in.gcount());
    if (in.eof() || in.bad()) {
      line.append(piece.data(), count);
      if (!line.empty()) in.clear(in.rdstate() & ~std::ios::failbit);
      return !line.empty();
    }
    if (!in.fail()) {  // the newline counts, and is not stored
      line.append(piece.data(), count - 1);
      return true;
    }
    if (count == 0) return false;
    in.clear();  // the piece is full
    line.append(piece.data(), count);
    if (line.size() > kLongestLine) too_large(file, "a line", kLongestLine);
  }
}

Descriptor open_own(const fs::path& file, int flags) {
  Descriptor own;
  struct stat status {};
  for (;;) {
    const Descriptor found(open(file.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!found && errno == ENOENT) {
      own = Descriptor(open(file.c_str(), flags | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (!own && errno == EEXIST) continue;  // another process was faster
      break;
    }
    if (!found || fstat(found.get(), &status) != 0) break;
    if (!S_ISREG(status.st_mode))
      throw UsageError(
          fmt::format("{}: {}, not a regular file", file.string(), kind_of(status.st_mode)),
          fmt::format("a run writes to its own files only: {}", kAway));
    if (status.st_nlink > 1)
      throw UsageError(fmt::format("{}: the file has {} names (hard links), and writing to it "
                                   "changes the others",
                                   file.string(), status.st_nlink),
                       "put a copy in its place");
    own = Descriptor(open(path_of(found).c_str(), flags | O_CLOEXEC));
    break;
  }
  if (own) return own;
  const int error = errno;
  require_resources(file.string(), error);
  throw RunError(fmt::format("{} cannot be written: {}", file.string(), std::strerror(error)),
                 error == ENOSPC || error == EDQUOT
                     ? "free some space, or choose another place: --run DIR"
                     : "choose another place: --run DIR");
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

}  // namespace millrace::base
