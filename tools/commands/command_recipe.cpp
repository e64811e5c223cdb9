// millrace recipe: prints a recipe with all its keys, or the names of the shipped recipes.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/commands/key_text.h"
#include "tools/terminal/console.h"
#include "tools/terminal/output.h"
#include "tools/training/pipeline_setup.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const Param* find(std::span<const Param> params, const std::string& name) {
  const auto found = std::find_if(params.begin(), params.end(),
                                  [&](const Param& param) { return param.name == name; });
  return found == params.end() ? nullptr : &*found;
}

std::span<const Param> params_of(const std::string& op) {
  for (const OpDeclaration& declared : op_declarations())
    if (declared.name == op) return declared.params;
  return {};
}

/// Returns the comment of a key in a printed recipe: its meaning, unit and default.
std::string comment_of(const Param& param, const std::string& value) {
  std::string text = param.help;
  if (!param.unit.empty()) text += fmt::format(" [{}]", param.unit);
  const std::string fallback = to_toml(param.fallback);
  if (fallback != value) text += fmt::format(" (default {})", fallback);
  return wrapped(text, terminal_columns(), "# ", "# ") + "\n";
}

/// Returns the recipe's TOML, each key preceded by its comment. Still the same recipe.
std::string commented(const Recipe& recipe) {
  std::istringstream lines(recipe.to_toml());
  std::string text, section;
  std::span<const Param> params = recipe_keys();
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with("[[")) {
      section = "";
      params = {};  // until the line with the op's name
    } else if (line.starts_with('[')) {
      section = line.substr(1, line.size() - 2) + ".";
    } else if (equals != std::string::npos) {
      const std::string name = line.substr(0, equals);
      const std::string value = line.substr(equals + 3);
      if (params.empty() && name == "op") params = params_of(value.substr(1, value.size() - 2));
      if (const Param* param = find(params, section + name)) text += comment_of(*param, value);
    }
    text += line + "\n";
  }
  return text;
}

Json chain_json(const std::vector<OpSpec>& chain) {
  Json json = Json::array();
  for (const OpSpec& op : chain) {
    Json params = Json::object();
    for (const Param& param : params_of(op.op))
      params[param.name] = value_json(op.params.at(param.name));
    json.push_back({{"op", op.op}, {"id", op.id}, {"enabled", op.enabled}, {"params", params}});
  }
  return json;
}

Json recipe_json(const Recipe& recipe) {
  Json json{{"command", "recipe"}, {"recipe", recipe.name()}, {"keys", Json::array()}};
  for (const Param& param : recipe_keys()) {
    Json key = key_json(param);
    key["value"] = value_json(recipe.at(param.name));
    json["keys"].push_back(std::move(key));
  }
  json["augment"] = chain_json(recipe.augment());
  json["eval_augment"] = chain_json(recipe.eval_augment());
  return json;
}

/// Returns the first comment of a recipe file, up to the end of its first sentence.
std::string first_sentence(const fs::path& file) {
  std::ifstream in(file);
  std::string text;
  for (std::string line; std::getline(in, line) && line.starts_with('#');) {
    text += (text.empty() ? "" : " ") + line.substr(std::min<std::size_t>(2, line.size()));
    if (text.ends_with('.') || text.ends_with(':')) break;
    if (const std::size_t end = text.find(". "); end != std::string::npos) {
      text.resize(end + 1);
      break;
    }
  }
  return text;
}

Exit list_recipes() {
  std::map<std::string, std::string> recipes;
  std::error_code ignored;
  for (const fs::path& folder : recipe_folders())
    for (const auto& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().extension() == ".toml")
        recipes.emplace(entry.path().stem().string(), first_sentence(entry.path()));
  if (verbosity().json) {
    Json json{{"command", "recipe"}, {"recipes", Json::array()}};
    for (const auto& [name, about] : recipes)
      json["recipes"].push_back({{"name", name}, {"about", about}});
    print("{}\n", study::to_text(json, 2));
    return Exit::done;
  }
  for (const auto& [name, about] : recipes)
    print("{}\n{}\n", name, wrapped(about, terminal_columns(), "    ", "    "));
  print("\nmillrace recipe NAME prints one with all its keys\n");
  return Exit::done;
}

Exit show_recipe(const std::vector<std::string>& words) {
  if (words.empty()) return list_recipes();
  const Recipe recipe = load_recipe(words);
  if (verbosity().json)
    print("{}\n", study::to_text(recipe_json(recipe), 2));
  else
    print("{}", commented(recipe));
  return Exit::done;
}

}  // namespace

void add_recipe(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand(
      "recipe",
      "print a recipe with every key: value, unit, meaning, default; or list the recipes");
  auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("recipe", *words,
                      "[RECIPE] [key=value ...]; without any, lists the shipped recipes");
  add_common(*command);
  command->footer("Example:\n  millrace recipe mnist-lenet loader.workers=4 > my.toml");
  command->callback(
      [words, &chosen] { chosen = [words](const ProgramStart&) { return show_recipe(*words); }; });
}

}  // namespace millrace::tools
