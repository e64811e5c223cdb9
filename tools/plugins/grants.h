// Which plugins may be loaded. A plugin is native code, and a recipe may come from a stranger: what
// a file names is loaded only where the user has asked for it on this command line, in the
// environment, or by `millrace plugins trust`. Plugins that come with millrace are exempt.
#pragma once

#include <string>
#include <vector>

#include "pipeline/recipe/recipe_file.h"
#include "plugins/host/registry.h"

namespace millrace::tools {

/// The environment's plugins.path.
inline constexpr const char* kPluginVariable = "MILLRACE_PLUGIN_PATH";

/// Takes note of every plugins.path=... among the program's arguments. main() calls it once, with
/// what the user typed: words that the program reads from files never get here.
void grant_plugins(const std::vector<std::string>& arguments);

/// Loads the plugins that a recipe or its overrides name, each after a line that says why it may
/// be. Throws UsageError for one that nobody asked for, with the argument to add, and DataError for
/// one that anyone may replace, that is missing or defective.
void load_asked_plugins(const pipeline::PluginsPath& path);

/// Loads those of MILLRACE_PLUGIN_PATH likewise, and returns the variable's value.
std::string load_plugins_of_environment();

/// Loads a plugin that the command line names by itself. Throws DataError.
plugins::PluginEntry load_named_plugin(const std::string& file);

}  // namespace millrace::tools
