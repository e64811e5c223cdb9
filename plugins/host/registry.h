// Units of this process: loads plugins from their files, and registers units.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "millrace/millrace.h"
#include "millrace/recipe.h"

namespace millrace::plugins {

// Loads plugins from shared objects. Reads and checks the table before it calls any function in it
// (plugin-safety contract).

/// Kind of a unit, in the order of printed lists.
enum class UnitKind { reader, decoder, geometric, pixel, filter, choice, batch };
MILLRACE_PRIVATE_API UnitKind kind_of(const millrace_unit& unit);
MILLRACE_PRIVATE_API std::string_view name_of(UnitKind kind);

/// Throws DataError with `file`, the unit and the first defect.
void check_plugin_table(const millrace_plugin_table& table, const std::string& file);

/// Throws DataError unless `file` is a shared object for this machine and as long as its headers
/// say: loading a truncated file would end the process. Runs no code of it.
MILLRACE_PRIVATE_API void check_plugin_file(const std::string& file);

/// Loads a shared object, which is never unloaded, and returns its checked table. Throws DataError.
const millrace_plugin_table& load_plugin(const std::string& file);

// Registration of built-in units, by the same tables that plugins export (equal-plugins contract).

/// Registers a table before main() begins. Define one as a constant beside the table, so that rooms
/// above this one need not be named here.
struct BuiltIn {
  explicit BuiltIn(const millrace_plugin_table& table);
};

// The registry of units: built-in ones, and those of loaded plugins. Filled at the start of the
// program, before recipes are checked, and read by all threads afterwards.

struct PluginEntry {
  const millrace_plugin_table* table;
  std::string file;  ///< empty for a built-in plugin
};

/// Environment variable equivalent to the recipe key plugins.path.
inline constexpr const char* kPluginVariable = "MILLRACE_PLUGIN_PATH";

/// Returns the plugins: built-in ones first, then in the order of loading.
MILLRACE_PRIVATE_API std::span<const PluginEntry> plugins();

/// Loads a shared object and adds its units, unless that file is loaded already. Throws DataError
/// for a defective plugin, and for one whose id or units exist already.
MILLRACE_PRIVATE_API PluginEntry add_plugin(const std::string& file);

/// Adds the units of a table in this process's memory, which must stay there until the process
/// ends. Throws DataError as add_plugin() does. Nothing else may use the registry meanwhile.
MILLRACE_PRIVATE_API void add_table(const millrace_plugin_table& table, const std::string& origin);

/// Returns the plugin that add_plugin() loaded from this file, or null.
MILLRACE_PRIVATE_API const PluginEntry* loaded_plugin(const std::string& file);

/// Returns the files in `paths`: folders (every *.so in them, sorted) or files, separated by ':'.
/// `from` names the key or variable that holds them. Loads none. Throws DataError for a missing
/// path or a folder without plugins.
MILLRACE_PRIVATE_API std::vector<std::string> plugin_files(const std::string& paths,
                                                           const std::string& from);

/// Returns the folder of the plugins that come with millrace.
MILLRACE_PRIVATE_API std::string shipped_folder();

/// Returns the shipped decoders (PNG and others), in lib/plugins beside this library. Loads them on
/// first use, because they depend on OpenCV. Thread-safe. Throws DataError.
MILLRACE_PRIVATE_API const PluginEntry& shipped_decoders();
/// Returns all plugins in use: plugins(), and the shipped decoders once they are loaded.
MILLRACE_PRIVATE_API std::vector<PluginEntry> plugins_in_use();

/// Returns an augmentation by its name. Throws UsageError with the nearest name.
MILLRACE_PRIVATE_API const millrace_unit& augmentation(std::string_view name);

/// Returns the readers of loaded plugins.
MILLRACE_PRIVATE_API std::span<const millrace_unit* const> plugin_readers();

/// Returns the decoders in the order in which they are tried: those of loaded plugins, then the
/// built-in ones.
std::span<const millrace_unit* const> decoders();

}  // namespace millrace::plugins
