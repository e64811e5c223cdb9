// The registry of units: built-in ones, and those of loaded plugins. Filled at the start of the
// program, before recipes are checked, and read by all threads afterwards.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/millrace.h"
#include "millrace/recipe.h"

namespace millrace::plugins {

struct PluginEntry {
  const millrace_plugin_table* table;
  std::string file;  ///< empty for a built-in plugin
};

/// Returns the plugins: built-in ones first, then in the order of loading.
std::span<const PluginEntry> plugins();

/// Loads a shared object and adds its units, unless that file is loaded already. Throws DataError
/// for a defective plugin, and for one whose id or units exist already.
PluginEntry add_plugin(const std::string& file);

/// Returns the plugin that add_plugin() loaded from this file, or null.
const PluginEntry* loaded_plugin(const std::string& file);

/// Returns the files in `paths`: folders (every *.so in them, sorted) or files, separated by ':'.
/// `from` names the key or variable that holds them. Loads none. Throws DataError for a missing
/// path or a folder without plugins.
std::vector<std::string> plugin_files(const std::string& paths, const std::string& from);

/// Returns the folder of the plugins that come with millrace.
std::string shipped_folder();

/// Returns the shipped decoders (PNG and others), in lib/plugins beside this library. Loads them on
/// first use, because they depend on OpenCV. Thread-safe. Throws DataError.
const PluginEntry& shipped_decoders();
/// Returns all plugins in use: plugins(), and the shipped decoders once they are loaded.
std::vector<PluginEntry> plugins_in_use();

/// Returns an augmentation by its name. Throws UsageError with the nearest name.
const millrace_unit& augmentation(std::string_view name);

/// Returns the readers of loaded plugins.
std::span<const millrace_unit* const> plugin_readers();

/// Returns the decoders in the order in which they are tried: those of loaded plugins, then the
/// built-in ones.
std::span<const millrace_unit* const> decoders();

}  // namespace millrace::plugins
