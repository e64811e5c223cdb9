#include "base/folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "millrace/error.h"

namespace millrace::base {

void require_folder(const std::string& path, const std::string& kind) {
  const std::string hint = fmt::format("check data.path, or make a set: millrace data make {} {}",
                                       kind, path.empty() ? "DIR" : shell_word(path));
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
