#include "base/located_sample.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/open_file.h"
#include "millrace/error.h"

namespace millrace::base {

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
      "leave the set alone while it is used; restart to list it again");
}

Sample read_located(const Location& location, Buffer& scratch) {
  return read_located(location, open_regular(location.path.data()).descriptor.get(), scratch);
}

}  // namespace millrace::base
