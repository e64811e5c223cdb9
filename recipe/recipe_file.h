// Recipe files as text, before they are checked.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/private_api.h"

namespace millrace::recipe {

// Bounds the nesting depth of a TOML text before it is parsed: toml++ recurses for every level, and
// a key of 50,000 parts would overflow the stack.

/// Limit on the parts of a key, and on nested brackets. A recipe needs three of either.
constexpr std::size_t kDeepestToml = 32;

/// Returns the number of the line that nests deeper than kDeepestToml, or 0 if none does.
MILLRACE_PRIVATE_API std::size_t line_nested_too_deep(std::string_view toml);

// Finds the file of a recipe and reads plugins.path from it before the rest can be checked: plugins
// declare augmentations and keys, so they must be loaded first.

/// Returns whether a word is key=value. Otherwise it is a recipe's name or path, which may contain
/// '=' too.
MILLRACE_PRIVATE_API bool is_override(std::string_view word);

/// Returns the file of `recipe`: a path, or the name of a shipped recipe in one of `folders` (the
/// first that has it). Throws UsageError with the nearest name, or what the word may mean instead:
/// a data set, or a model and the shipped recipes that train it.
MILLRACE_PRIVATE_API std::filesystem::path find_recipe(
    const std::string& recipe, std::span<const std::filesystem::path> folders);

/// The value of plugins.path and its source. Overrides win over the recipe.
struct PluginsPath {
  std::string value;
  std::string from;  ///< the recipe's file, or the key for an override; empty if neither sets it
};

/// Returns plugins.path and checks nothing else. Throws UsageError.
MILLRACE_PRIVATE_API PluginsPath plugins_path(const std::string& recipe,
                                              std::span<const std::string> overrides,
                                              std::span<const std::filesystem::path> folders);

// Reads a recipe's text as a flat list of keys, to compare it with others. Needs no plugin and no
// declaration, so it reads recipes of any version.

/// Returns dotted keys with their values as TOML, in the order of the text: loader.workers, 2. An
/// entry of [[augment]] gives augment.ID.NAME, and the chain's order is under augment. Throws
/// DataError that names `where` if the text is not TOML.
MILLRACE_PRIVATE_API std::vector<std::pair<std::string, std::string>> recipe_values(
    const std::string& toml, const std::string& where);

}  // namespace millrace::recipe
