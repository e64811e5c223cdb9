// All units there are: built in, and from the plugins that were loaded. Filled when the program
// starts, before recipes are checked; read by all threads afterwards.
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
  std::string file;  ///< empty: built in
};

/// Built in ones first, then in the order of loading.
std::span<const PluginEntry> plugins();

/// Loads a shared object and adds its units, unless that file is loaded already. Throws DataError
/// for a defective plugin, and for one whose id or units are there already.
PluginEntry add_plugin(const std::string& file);

/// The plugin that was loaded from this file by add_plugin(); null if none was.
const PluginEntry* loaded_plugin(const std::string& file);

/// The files that `paths` stands for: folders (every *.so in them, sorted) or files, ':' between
/// them. `from` names the key or variable that they stand in. Loads none. Throws DataError for a
/// path that is missing or a folder without plugins.
std::vector<std::string> plugin_files(const std::string& paths, const std::string& from);

/// Where the plugins lie that come with millrace.
std::string shipped_folder();

/// The shipped decoders (PNG and others), in lib/plugins beside this library. Loaded when first
/// asked for, for they draw in OpenCV; thread-safe. Throws DataError.
const PluginEntry& shipped_decoders();
/// All plugins that are in use: plugins(), and the shipped decoders once they are loaded.
std::vector<PluginEntry> plugins_in_use();

/// An augmentation by its name; throws UsageError with the nearest one.
const millrace_unit& augmentation(std::string_view name);

/// Readers of loaded plugins.
std::span<const millrace_unit* const> plugin_readers();

/// What bytes are asked for in turn: decoders of loaded plugins, then built in ones.
std::span<const millrace_unit* const> decoders();

}  // namespace millrace::plugins
