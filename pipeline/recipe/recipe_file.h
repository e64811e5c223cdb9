// Which file a recipe's name stands for, and a look into it before it can be checked: plugins
// declare augmentations and keys, so plugins.path has to be known first.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace millrace::pipeline {

/// Whether a word is key=value; else it is a recipe's name or path, which may hold a '=' as well.
bool is_override(std::string_view word);

/// `recipe` is a file, or the name of a shipped recipe in one of `folders` (the first that has it
/// counts). Throws UsageError with the nearest name.
std::filesystem::path find_recipe(const std::string& recipe,
                                  std::span<const std::filesystem::path> folders);

/// plugins.path as the overrides or else the recipe say, and which of them does.
struct PluginsPath {
  std::string value;
  std::string from;  ///< the recipe's file, or the key's name for an override; empty: neither
};

/// Checks nothing else yet. Throws UsageError.
PluginsPath plugins_path(const std::string& recipe, std::span<const std::string> overrides,
                         std::span<const std::filesystem::path> folders);

}  // namespace millrace::pipeline
