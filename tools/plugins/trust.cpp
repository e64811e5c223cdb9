// Reads, writes and checks the trust list.
#include "tools/plugins/trust.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <span>

#include "base/files.h"
#include "base/printable.h"
#include "millrace/error.h"
#include "tools/data/sha256.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashDigits = 64;

std::string hash_of(const fs::path& file) {
  const base::OpenFile open = base::open_regular(file.string());
  return hex(sha256_of(open.descriptor.get(), file.string()));
}

/// Returns the path made absolute and without links, even if it no longer exists.
std::string key_of(const fs::path& file) {
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(file, error);
  return (error ? fs::absolute(file).lexically_normal() : resolved).string();
}

/// Returns the mode of `path`, or 0 if it does not exist: opening it then reports that.
mode_t mode_of(const fs::path& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode : 0;
}

void require_unshared_as_written(const fs::path& path) {
  const auto refuse = [&](const fs::path& what, mode_t mode) {
    constexpr const char* kMove = "move the file to a folder of your own";
    const std::string name = what.string();
    throw DataError(
        fmt::format("{}: rejected: every user may write {}", path.string(), name),
        // /tmp is legitimately writable by all
        (mode & S_ISVTX) != 0 ? kMove : fmt::format("chmod o-w '{}', or {}", name, kMove));
  };
  const fs::path folder = path.parent_path();
  for (const fs::path& what : {path, folder})
    if (const mode_t mode = mode_of(what); (mode & S_IWOTH) != 0) refuse(what, mode);
  for (fs::path above = folder; above.has_relative_path();) {
    above = above.parent_path();
    if (const mode_t mode = mode_of(above); (mode & S_IWOTH) != 0 && (mode & S_ISVTX) == 0)
      refuse(above, mode);
  }
}

}  // namespace

void require_unshared(const fs::path& path) {
  const fs::path written = fs::absolute(path);
  require_unshared_as_written(written);
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  if (!error && resolved != written) require_unshared_as_written(resolved);
}

fs::path TrustList::place() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (config != nullptr && *config == '/')  // the XDG standard ignores relative paths
    folder = config;
  else if (home != nullptr && *home != '\0')
    folder = fs::path(home) / ".config";
  return folder.empty() ? folder : folder / "millrace" / "trusted-plugins";
}

TrustList::TrustList() {
  const fs::path file = place();
  std::error_code error;
  if (file.empty() || !fs::exists(file, error)) return;
  require_unshared(file);
  std::ifstream in(file);
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const bool sound = line.size() > kHashDigits + 2 && line.substr(kHashDigits, 2) == "  " &&
                       line.find_first_not_of("0123456789abcdef") == kHashDigits;
    if (!sound)
      throw DataError(fmt::format("{}:{}: not 'SHA-256  PATH'", file.string(), number),
                      "remove the line; millrace plugins trust FILE adds it again");
    entries_.push_back({line.substr(0, kHashDigits), line.substr(kHashDigits + 2)});
  }
}

Trust TrustList::of(const fs::path& file) const {
  const std::string key = key_of(file);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.path == key; });
  if (found == entries_.end()) return Trust::none;
  return hash_of(key) == found->hash ? Trust::whole : Trust::changed;
}

void TrustList::add(const fs::path& file) {
  const std::string key = key_of(file);
  if (base::printable(key) != key)
    throw UsageError(
        fmt::format("plugins trust: {}: a control character in the path", base::printable(key)),
        "rename the file or its folder");
  remove(file);
  entries_.push_back({hash_of(key), key});
}

bool TrustList::remove(const fs::path& file) {
  const std::string key = key_of(file);
  return std::erase_if(entries_, [&](const Entry& entry) { return entry.path == key; }) > 0;
}

void TrustList::save() const {
  const fs::path file = place();
  if (file.empty())
    throw RunError("neither XDG_CONFIG_HOME nor HOME is set: the list has no place",
                   "set one of them");
  std::error_code error;
  fs::create_directories(file.parent_path(), error);  // writing the file reports a failure
  std::string text;
  for (const Entry& entry : entries_) text += entry.hash + "  " + entry.path + "\n";
  base::AtomicFile out(file);
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

}  // namespace millrace::tools
