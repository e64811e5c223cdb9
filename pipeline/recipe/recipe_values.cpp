// Flattens a recipe's TOML into dotted keys.
#include "pipeline/recipe/recipe_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "millrace/error.h"
#include "millrace/param.h"
#include "pipeline/recipe/toml_depth.h"

namespace millrace::pipeline {
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

}  // namespace millrace::pipeline
