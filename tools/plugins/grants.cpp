// Reads and writes the trust list, collects the user's grants, and checks plugins against them.

#include "tools/plugins/grants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "base/open_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/remote/sha256.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashDigits = 64;

std::string hash_of(const fs::path& file) {
  const base::OpenFile open = base::open_regular(file.string());
  return pipeline::hex_of(pipeline::sha256_of_file(open.descriptor.get(), file.string()));
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

namespace {

constexpr std::string_view kKey = "plugins.path=";

/// Splits `text` at separators.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Paths of files and folders that this command line grants.
std::vector<std::string>& typed_paths() {
  static std::vector<std::string> paths;
  return paths;
}

void grant(std::string_view value) {
  if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
      value.back() == value.front())
    value = value.substr(1, value.size() - 2);
  const auto add = [](std::string_view paths) {
    for (std::string& path : split(paths, ':')) typed_paths().push_back(std::move(path));
  };
  add(value);
  const auto cells = split(value, ',');  // from a sweep
  if (cells.size() > 1) std::for_each(cells.begin(), cells.end(), add);
}

/// Returns whether both are the same file or folder, of whatever type.
bool are_same(const std::string& one, const std::string& other) {
  struct stat a {
  }, b{};
  return stat(one.c_str(), &a) == 0 && stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

/// Returns whether `file` is one of `paths`, or lies directly in one of them.
bool is_named_by(const std::vector<std::string>& paths, const std::string& file) {
  const std::string parent = fs::path(file).parent_path().string();
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return are_same(path, file) || are_same(path, parent.empty() ? "." : parent);
  });
}

std::string environment_paths() {
  const char* value = std::getenv(plugins::kPluginVariable);
  return value == nullptr ? "" : value;
}

bool is_shipped(const std::string& file) {
  std::error_code error;
  const fs::path folder = fs::canonical(plugins::shipped_folder(), error);
  if (error) return false;
  const fs::path resolved = fs::canonical(file, error);
  if (error) return false;
  const auto [end, place] =
      std::mismatch(folder.begin(), folder.end(), resolved.begin(), resolved.end());
  return end == folder.end();
}

/// Returns why `file` may be loaded; empty if it was not asked for. Sets `trust` to the list's
/// answer if the list was consulted.
std::string reason_for(const std::string& file, Trust* trust) {
  if (is_shipped(file)) return "comes with millrace";
  if (is_named_by(typed_paths(), file)) return "named on the command line";
  if (is_named_by(split(environment_paths(), ':'), file))
    return fmt::format("named by {}", plugins::kPluginVariable);
  *trust = TrustList().of(file);
  if (*trust == Trust::whole) return "trusted in " + TrustList::place().string();
  return "";
}

void load(const std::string& file, const std::string& reason) {
  if (plugins::loaded_plugin(file) != nullptr) return;
  if (!is_shipped(file)) {
    require_unshared(file);
    say(fmt::format("loading plugin {}: {}", base::printable(file), reason));
  }
  keep_stdout_for_results();
  plugins::add_plugin(file);
}

}  // namespace

void grant_plugins(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument.starts_with(kKey)) {
      grant(std::string_view(argument).substr(kKey.size()));
      continue;
    }
    // --cell and --change take several key=value in one argument.
    for (const std::string& word : split(argument, ' '))
      if (word.starts_with(kKey)) grant(std::string_view(word).substr(kKey.size()));
  }
}

void load_asked_plugins(const recipe::PluginsPath& path) {
  std::vector<std::pair<std::string, std::string>> reasons;  // all are known before one is loaded
  for (const std::string& file : plugins::plugin_files(path.value, path.from)) {
    if (plugins::loaded_plugin(file) != nullptr) continue;
    Trust trust = Trust::none;
    reasons.emplace_back(file, reason_for(file, &trust));
    if (!reasons.back().second.empty()) continue;
    throw UsageError(
        fmt::format("{} names the plugin {}, which {}", path.from, file,
                    trust == Trust::changed
                        ? "has changed since it was trusted"
                        : "neither this command line nor the environment asks for"),
        fmt::format("it is native code; if you trust it, add {}, or run millrace plugins trust {}",
                    shell_word(std::string(kKey) + path.value), shell_word(file)));
  }
  for (const auto& [file, reason] : reasons) load(file, reason);
}

std::string load_plugins_of_environment() {
  std::string paths = environment_paths();
  if (!paths.empty())
    for (const std::string& file : plugins::plugin_files(paths, plugins::kPluginVariable))
      load(file, fmt::format("named by {}", plugins::kPluginVariable));
  return paths;
}

plugins::PluginEntry load_named_plugin(const std::string& file) {
  load(file, "named on the command line");
  return plugins::add_plugin(file);
}

}  // namespace millrace::tools
