// Collects the user's grants and checks plugins against them.
#include "tools/plugins/grants.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "millrace/error.h"
#include "tools/plugins/trust.h"
#include "tools/terminal/console.h"
#include "tools/terminal/output.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

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
  const char* value = std::getenv(kPluginVariable);
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

/// Returns why `file` may be loaded; empty if nobody asked for it. Sets `trust` to the list's
/// answer if the list was consulted.
std::string reason_for(const std::string& file, Trust* trust) {
  if (is_shipped(file)) return "comes with millrace";
  if (is_named_by(typed_paths(), file)) return "named on the command line";
  if (is_named_by(split(environment_paths(), ':'), file))
    return fmt::format("named by {}", kPluginVariable);
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

void load_asked_plugins(const pipeline::PluginsPath& path) {
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
    for (const std::string& file : plugins::plugin_files(paths, kPluginVariable))
      load(file, fmt::format("named by {}", kPluginVariable));
  return paths;
}

plugins::PluginEntry load_named_plugin(const std::string& file) {
  load(file, "named on the command line");
  return plugins::add_plugin(file);
}

}  // namespace millrace::tools
