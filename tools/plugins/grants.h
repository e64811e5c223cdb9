// Permission to load plugins: the user's list of trusted ones, and what this call grants.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "plugins/host/registry.h"
#include "recipe/recipe_file.h"

namespace millrace::tools {

// The user's list of trusted plugins, which may be loaded whenever a recipe names them. It is a
// text file in the format of sha256sum: "HASH  PATH", one line per plugin.

/// Whether the list holds a file, and with the same content.
enum class Trust { none, changed, whole };

class TrustList {
 public:
  /// Returns $XDG_CONFIG_HOME/millrace/trusted-plugins, by default below ~/.config. Empty if
  /// neither variable is set.
  static std::filesystem::path place();

  /// Reads the list at place(); a missing one is empty. Throws DataError for a malformed line, and
  /// for a list that others may write.
  TrustList();

  /// Returns `whole` if the list holds this path and the contents are the trusted ones. Throws
  /// DataError if the file cannot be read.
  Trust of(const std::filesystem::path& file) const;
  /// Adds a file, or replaces its hash. Throws DataError, or UsageError for a path that does not
  /// fit in a line.
  void add(const std::filesystem::path& file);
  /// Removes a file, which need not exist any more. Returns false if it is not in the list.
  bool remove(const std::filesystem::path& file);
  /// Writes the list. Throws RunError.
  void save() const;

  struct Entry {
    std::string hash;  ///< SHA-256, 64 hexadecimal digits
    std::string path;  ///< absolute, links resolved
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

/// Throws DataError if anyone may replace `path`: if it, or its folder, is writable by everyone, or
/// a folder further up is so without the sticky bit. Checks the path as given and its target.
void require_unshared(const std::filesystem::path& path);

// Decides which plugins may be loaded. A plugin is native code, and a recipe may come from a
// stranger: a plugin named in a file is loaded only if the user has asked for it on this command
// line, in the environment, or by `millrace plugins trust`. Plugins shipped with millrace are
// exempt.

/// Records every plugins.path=... among the program's arguments. main() calls it once, with the
/// words that the user typed, never with words read from files.
void grant_plugins(const std::vector<std::string>& arguments);

/// Loads the plugins that a recipe or its overrides name, printing for each a line that says why it
/// may be loaded. Throws UsageError, with the argument to add, for one that was not asked for.
/// Throws DataError for one that is missing, defective, or writable by others.
void load_asked_plugins(const recipe::PluginsPath& path);

/// Loads the plugins of MILLRACE_PLUGIN_PATH likewise, and returns the variable's value.
std::string load_plugins_of_environment();

/// Loads a plugin that the command line names directly. Throws DataError.
plugins::PluginEntry load_named_plugin(const std::string& file);

}  // namespace millrace::tools
