// Finds recipe files and reads plugins.path from them.
#include "pipeline/recipe/recipe_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <iterator>
#include <set>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "base/suggest.h"
#include "millrace/error.h"
#include "millrace/param.h"
#include "pipeline/recipe/toml_depth.h"

namespace millrace::pipeline {

namespace fs = std::filesystem;

bool is_override(std::string_view word) {
  const std::size_t at = word.find_first_of("=/");  // no key contains a slash
  return at != word.npos && word[at] == '=';
}

fs::path find_recipe(const std::string& recipe, std::span<const fs::path> folders) {
  std::error_code ignored;
  if (fs::is_regular_file(recipe, ignored)) return recipe;
  std::set<std::string> names;
  for (const auto& folder : folders) {
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() != ".toml") continue;
      names.insert(entry.path().stem().string());
      if (entry.path().stem() == recipe) return entry.path();
    }
  }
  throw UsageError(fmt::format("{} is neither a recipe file nor a shipped recipe", recipe),
                   names.empty()
                       ? "give the path of a TOML file"
                       : fmt::format("did you mean {}? shipped: {}", base::nearest(recipe, names),
                                     fmt::join(names, ", ")));
}

PluginsPath plugins_path(const std::string& recipe, std::span<const std::string> overrides,
                         std::span<const fs::path> folders) {
  constexpr std::string_view kKey = "plugins.path";
  PluginsPath path;
  if (!recipe.empty()) {
    const fs::path file = find_recipe(recipe, folders);
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    try {
      if (line_nested_too_deep(text) == 0) {
        const std::string value = toml::parse(text).at_path(kKey).value_or("");
        if (!value.empty()) path = {value, file.string()};
      }
    } catch (const toml::parse_error&) {  // Recipe::load() reports it, with the line
    }
  }
  for (const std::string_view text : overrides) {
    if (!text.starts_with(kKey) || text.substr(kKey.size(), 1) != "=") continue;
    const Param param = Param::text(std::string(kKey), "", "");
    path = {std::get<std::string>(parse_value(param, text.substr(kKey.size() + 1), "")),
            std::string(kKey)};
  }
  return path;
}

}  // namespace millrace::pipeline
