// Loads a recipe after its plugins, and checks its address.
#include "pipeline/setup/load_recipe.h"

#include <fmt/format.h>

#include <string_view>

#include "millrace/error.h"
#include "pipeline/readers/url.h"
#include "recipe/recipe_file.h"
#include "recipe/recipe_words.h"

namespace millrace::pipeline {
namespace {

/// Rejects an address that would take a secret into config.toml. `path` is a value of data.path.
void check_address(const std::string& path) {
  if (!is_remote(path)) return;
  try {
    const Url url = Url::parse(path);
    if (url.query.empty()) return;
    if (url.is_bucket())
      throw UsageError(fmt::format("data.path: {}: the address has a query, which a run would "
                                   "record",
                                   redacted(path)),
                       "leave it out; a key with a '?' cannot be named");
  } catch (const DataError& error) {
    throw UsageError(fmt::format("data.path: {}", error.what()), error.hint());
  }
  throw UsageError(fmt::format("data.path: {}: the address has a query, which a run would record",
                               redacted(path)),
                   "leave it out, and set MILLRACE_REMOTE_QUERY to it in the environment");
}

Recipe load_any_recipe(const std::vector<std::string>& arguments, const Host& host,
                       Plugins plugins) {
  auto [recipe, overrides] = recipe::recipe_words(arguments);
  constexpr std::string_view kPath = "data.path=";
  for (const std::string& word : overrides)
    if (word.starts_with(kPath)) check_address(word.substr(kPath.size()));
  // Plugins declare augmentations and keys, so they are loaded before anything is checked.
  const auto& folders = host.recipe_folders;
  const recipe::PluginsPath path = recipe::plugins_path(recipe, overrides, folders);
  if (plugins == Plugins::none) {
    try {
      return Recipe::load(op_declarations(), recipe, overrides, folders);
    } catch (const UsageError& error) {
      if (path.value.empty()) throw;
      throw UsageError(fmt::format("{} (plugins are not loaded here)", error.what()), error.hint());
    }
  }
  host.load_plugins(path);
  if (const std::string more = host.load_plugins_of_environment(); !more.empty()) {
    // config.toml reproduces the run, whatever the environment says later.
    const bool there = path.value == more || path.value.ends_with(":" + more);
    overrides.push_back("plugins.path=" + (there                ? path.value
                                           : path.value.empty() ? more
                                                                : path.value + ":" + more));
  }
  return Recipe::load(op_declarations(), recipe, overrides, folders);
}

}  // namespace

Recipe load_recipe(const std::vector<std::string>& arguments, const Host& host, Plugins plugins) {
  Recipe recipe = load_any_recipe(arguments, host, plugins);
  check_address(recipe.text("data.path"));
  return recipe;
}

}  // namespace millrace::pipeline
