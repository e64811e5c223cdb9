// The process around a pipeline, as its set-up needs it: the program, or a Python interpreter.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "recipe/recipe_file.h"

namespace millrace::pipeline {

/// All functions must be set.
struct Host {
  /// Shows a remark to the user.
  std::function<void(const std::string& text)> say;
  /// Loads the plugins that a recipe names, which may come from a stranger, if the user has asked
  /// for them. Otherwise throws UsageError. Does nothing for an empty path.
  std::function<void(const recipe::PluginsPath& path)> load_plugins;
  /// Loads the plugins that the environment names. Returns their paths, joined by ':'.
  std::function<std::string()> load_plugins_of_environment;
  /// Folders of shipped recipes.
  std::vector<std::filesystem::path> recipe_folders;
};

}  // namespace millrace::pipeline
