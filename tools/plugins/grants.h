// Decides which plugins may be loaded. A plugin is native code, and a recipe may come from a
// stranger: a plugin named in a file is loaded only if the user has asked for it on this command
// line, in the environment, or by `millrace plugins trust`. Plugins shipped with millrace are
// exempt.
#pragma once

#include <string>
#include <vector>

#include "pipeline/recipe/recipe_file.h"
#include "plugins/host/registry.h"

namespace millrace::tools {

/// Environment variable equivalent to plugins.path.
inline constexpr const char* kPluginVariable = "MILLRACE_PLUGIN_PATH";

/// Records every plugins.path=... among the program's arguments. main() calls it once, with the
/// words that the user typed, never with words read from files.
void grant_plugins(const std::vector<std::string>& arguments);

/// Loads the plugins that a recipe or its overrides name, printing for each a line that says why it
/// may be loaded. Throws UsageError, with the argument to add, for one that nobody asked for.
/// Throws DataError for one that is missing, defective, or writable by others.
void load_asked_plugins(const pipeline::PluginsPath& path);

/// Loads the plugins of MILLRACE_PLUGIN_PATH likewise, and returns the variable's value.
std::string load_plugins_of_environment();

/// Loads a plugin that the command line names directly. Throws DataError.
plugins::PluginEntry load_named_plugin(const std::string& file);

}  // namespace millrace::tools
