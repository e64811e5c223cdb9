// Bounds the nesting of TOML, finds recipe files, and flattens them into dotted keys.

#define TOML_EXCEPTIONS 1

#include "recipe/recipe_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/record_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "millrace/param.h"
#include "millrace/recipe.h"

namespace millrace::recipe {

// Scans TOML text for its nesting depth.

namespace {

/// Returns the end of the string that begins at `at`, in any of TOML's four kinds of quotes.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool lines = text.substr(at, 3) == std::string_view(quote == '"' ? "\"\"\"" : "'''");
  for (std::size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (!lines && (text[i] == quote || text[i] == '\n')) {
      return text[i] == quote ? i + 1 : i;
    } else if (lines && text[i] == quote) {
      std::size_t count = 1;
      while (i + count < text.size() && text[i + count] == quote) ++count;
      // Up to two quotes may precede the end.
      if (count >= 3) return i + std::min<std::size_t>(count, 5);
      i += count - 1;
    }
  }
  return text.size();
}

}  // namespace

std::size_t line_nested_too_deep(std::string_view toml) {
  std::size_t line = 1;
  std::size_t dots = 0;  // since the last key or value ended; a number has one
  std::size_t brackets = 0;
  for (std::size_t i = 0; i < toml.size(); ++i) {
    switch (toml[i]) {
      case '#':
        i = std::min(toml.find('\n', i), toml.size()) - 1;
        break;
      case '"':
      case '\'': {
        const std::size_t end = end_of_string(toml, i);
        line += static_cast<std::size_t>(std::count(&toml[i], toml.data() + end, '\n'));
        i = end - 1;
        break;
      }
      case '\n':
        ++line;
        dots = 0;
        break;
      case '.':
        if (++dots >= kDeepestToml) return line;
        break;
      case '[':
      case '{':
        dots = 0;
        if (++brackets > kDeepestToml) return line;
        break;
      case ']':
      case '}':
        brackets -= brackets > 0 ? 1 : 0;
        dots = 0;
        break;
      case ',':
      case '=':
        dots = 0;
        break;
      default:
        break;
    }
  }
  return 0;
}

// Finds recipe files and reads plugins.path from them.

namespace fs = std::filesystem;

bool is_override(std::string_view word) {
  const std::size_t at = word.find_first_of("=/");  // no key contains a slash
  return at != word.npos && word[at] == '=';
}

namespace {

/// Shipped recipes by name.
using ShippedRecipes = std::map<std::string, fs::path>;

std::vector<std::string> names_in(const ShippedRecipes& shipped) {
  std::vector<std::string> names;
  for (const auto& [name, file] : shipped) names.push_back(name);
  return names;
}

/// Returns the names of the recipes that train `model`.
std::vector<std::string> recipes_with(const std::string& model, const ShippedRecipes& shipped) {
  std::vector<std::string> names;
  for (const auto& [name, file] : shipped) {
    try {
      if (toml::parse_file(file.string()).at_path("model.name").value_or("") == model)
        names.push_back(name);
    } catch (const toml::parse_error&) {  // reported where the recipe is used
    }
  }
  return names;
}

/// Returns what a word that is not a recipe may mean, with a space behind it, or an empty text.
std::string advice_on(const std::string& word, const ShippedRecipes& shipped) {
  const auto keys = recipe_keys();
  const auto models = std::find_if(keys.begin(), keys.end(),
                                   [](const Param& key) { return key.name == "model.name"; });
  if (models != keys.end())
    for (const std::string& model : models->choices)
      if (base::folded(model) == base::folded(word)) {
        const std::vector<std::string> with = recipes_with(model, shipped);
        return with.empty()
                   ? fmt::format("it is a model: give a recipe, then model.name={}; ", model)
                   : fmt::format("it is the model of {}; or give a recipe, then model.name={}; ",
                                 fmt::join(with, ", "), model);
      }
  const std::string near = base::nearest(word, names_in(shipped));
  const bool alike = base::edit_distance(word, near) * 2 <= std::max(word.size(), near.size());
  return alike ? fmt::format("did you mean {}? ", near) : "";
}

}  // namespace

fs::path find_recipe(const std::string& recipe, std::span<const fs::path> folders) {
  std::error_code ignored;
  if (fs::is_regular_file(recipe, ignored)) return recipe;
  ShippedRecipes recipes;
  for (const auto& folder : folders) {
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() != ".toml") continue;
      recipes.emplace(entry.path().stem().string(), entry.path());
      if (entry.path().stem() == recipe) return entry.path();
    }
  }
  const std::vector<std::string> names = names_in(recipes);
  const std::string shipped =
      names.empty() ? "" : fmt::format("shipped: {}", fmt::join(names, ", "));
  if (fs::is_directory(recipe, ignored))
    throw UsageError(recipe + " is a directory, not a recipe",
                     fmt::format("a data set? give a recipe, then data.path={}; {}",
                                 base::shell_word(recipe), shipped));
  if (recipe.ends_with(".toml") || recipe.find('/') != std::string::npos)
    throw UsageError(recipe + ": no such file",
                     names.empty()
                         ? "give the path of a TOML file"
                         : "give the path of a TOML file, or a shipped recipe; " + shipped);
  throw UsageError(
      fmt::format("{} is neither a recipe file nor a shipped recipe", recipe),
      names.empty() ? "give the path of a TOML file" : advice_on(recipe, recipes) + shipped);
}

PluginsPath plugins_path(const std::string& recipe, std::span<const std::string> overrides,
                         std::span<const fs::path> folders) {
  constexpr std::string_view kKey = "plugins.path";
  PluginsPath path;
  if (!recipe.empty()) {
    const fs::path file = find_recipe(recipe, folders);
    const std::string text = base::read_record(file);
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

// Flattens a recipe's TOML into dotted keys.

namespace {

using RecipeValues = std::vector<std::pair<std::string, std::string>>;

/// Returns a node as config.toml writes it, or the node's TOML if recipes have no such type.
std::string toml_text(const toml::node& node) {
  if (const auto number = node.value_exact<double>()) return to_toml(Value(*number));
  if (const auto word = node.value_exact<std::string>()) return to_toml(Value(*word));
  if (const toml::array* array = node.as_array()) {
    std::vector<double> numbers;
    for (const auto& element : *array)
      if (const auto number = element.value<double>()) numbers.push_back(*number);
    if (numbers.size() == array->size()) return to_toml(Value(numbers));
  }
  std::ostringstream text;
  node.visit([&text](const auto& value) { text << value; });
  return text.str();
}

/// Returns the entries in the order of the text; toml++ sorts keys.
std::vector<std::pair<std::string, const toml::node*>> in_order(const toml::table& table) {
  std::vector<std::pair<std::string, const toml::node*>> all;
  for (const auto& [key, node] : table) all.emplace_back(std::string(key.str()), &node);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    const auto line = [](const toml::node* node) { return node->source().begin.line; };
    return line(a.second) < line(b.second);
  });
  return all;
}

void flatten(const toml::table& table, const std::string& prefix, RecipeValues& values);

/// Flattens a chain of augmentations: its order, then each op's parameters under its id.
void flatten_chain(const toml::array& chain, const std::string& name, RecipeValues& values) {
  std::string order;
  RecipeValues parameters;
  for (const auto& element : chain) {
    const toml::table& entry = *element.as_table();
    const std::string id = entry["id"].value_or(entry["op"].value_or(std::string("?")));
    order += (order.empty() ? "" : ", ") + id;
    flatten(entry, name + "." + id + ".", parameters);
  }
  values.emplace_back(name, order);
  values.insert(values.end(), parameters.begin(), parameters.end());
}

void flatten(const toml::table& table, const std::string& prefix, RecipeValues& values) {
  for (const auto& [key, node] : in_order(table)) {
    if (const toml::table* nested = node->as_table()) {
      flatten(*nested, prefix + key + ".", values);
    } else if (node->is_array_of_tables()) {
      flatten_chain(*node->as_array(), prefix + key, values);
    } else {
      values.emplace_back(prefix + key, toml_text(*node));
    }
  }
}

}  // namespace

RecipeValues recipe_values(const std::string& text, const std::string& where) {
  const char* const hint = "it was written by a run; take it from a copy";
  if (const std::size_t line = line_nested_too_deep(text); line > 0)
    throw DataError(fmt::format("{}:{} is damaged: more than {} levels", where, line, kDeepestToml),
                    hint);
  RecipeValues values;
  try {
    flatten(toml::parse(text), "", values);
  } catch (const toml::parse_error& error) {
    throw DataError(
        fmt::format("{}:{} is damaged: {}", where, error.source().begin.line, error.description()),
        hint);
  }
  return values;
}

}  // namespace millrace::recipe
