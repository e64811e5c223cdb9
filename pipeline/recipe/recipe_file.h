// Finds the file of a recipe and reads plugins.path from it before the rest can be checked: plugins
// declare augmentations and keys, so they must be loaded first.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/private_api.h"

namespace millrace::pipeline {

/// Returns whether a word is key=value. Otherwise it is a recipe's name or path, which may contain
/// '=' too.
MILLRACE_PRIVATE_API bool is_override(std::string_view word);

/// Returns the file of `recipe`: a path, or the name of a shipped recipe in one of `folders` (the
/// first that has it). Throws UsageError with the nearest name.
std::filesystem::path find_recipe(const std::string& recipe,
                                  std::span<const std::filesystem::path> folders);

/// The value of plugins.path and its source. Overrides win over the recipe.
struct PluginsPath {
  std::string value;
  std::string from;  ///< the recipe's file, or the key for an override; empty if neither sets it
};

/// Returns plugins.path and checks nothing else. Throws UsageError.
MILLRACE_PRIVATE_API PluginsPath plugins_path(const std::string& recipe,
                                              std::span<const std::string> overrides,
                                              std::span<const std::filesystem::path> folders);

}  // namespace millrace::pipeline
