// millrace keys and millrace recipe: keys as they are declared, and recipes with all their keys.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/text.h"
#include "recipe/key_hints.h"
#include "recipe/recipe_file.h"
#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/terminal/program.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Param::Type type) {
  switch (type) {
    case Param::Type::boolean:
      return "boolean";
    case Param::Type::integer:
      return "integer";
    case Param::Type::number:
      return "number";
    case Param::Type::text:
      return "text";
    case Param::Type::choice:
      return "choice";
    case Param::Type::numbers:
      return "numbers";
  }
  return "";
}

Json limit_json(double limit) { return std::isfinite(limit) ? Json(limit) : Json(nullptr); }

}  // namespace

std::string value_text(const Param& param, const Value& value) {
  const bool is_word = std::holds_alternative<std::string>(value);
  return to_toml(value) + (param.unit.empty() || is_word ? "" : " " + param.unit);
}

Json value_json(const Value& value) {
  return std::visit([](const auto& one) { return Json(one); }, value);
}

Json key_json(const Param& param) {
  Json json{{"key", param.name},
            {"type", name_of(param.type)},
            {"default", value_json(param.fallback)},
            {"unit", param.unit.empty() ? Json(nullptr) : Json(param.unit)},
            {"help", param.help}};
  const bool is_number = param.type == Param::Type::integer || param.type == Param::Type::number ||
                         param.type == Param::Type::numbers;
  if (is_number) {
    json["min"] = limit_json(param.min);
    json["max"] = limit_json(param.max);
  }
  if (!param.choices.empty()) json["choices"] = param.choices;
  if (!param.word.empty()) json["word"] = param.word;
  return json;
}

// millrace keys: lists recipe keys, and the parameters of augmentations, as they are declared.

namespace {

constexpr std::string_view kAugment = "augment.";
constexpr std::string_view kIndent = "    ";

struct KeysArguments {
  std::vector<std::string> prefixes;   ///< none: all keys
  std::vector<std::string> overrides;  ///< plugins.path=..., whose units have keys too
};

/// Returns all recipe keys, then augment.OP.NAME for each parameter of each augmentation.
std::vector<Param> all_keys() {
  const auto keys = recipe_keys();
  std::vector<Param> all(keys.begin(), keys.end());
  for (const OpDeclaration& op : op_declarations()) {
    for (Param param : op.params) {
      param.name = fmt::format("{}{}.{}", kAugment, op.name, param.name);
      all.push_back(std::move(param));
    }
  }
  return all;
}

/// Returns those of `all` that begin with `prefix`, or else those whose last part it is. Throws
/// UsageError if there are none.
std::vector<Param> keys_at(const std::string& prefix, const std::vector<Param>& all) {
  std::vector<Param> chosen;
  const auto take = [&](const auto& fits) {
    if (chosen.empty()) std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), fits);
  };
  // A whole section or op, if there is one: train, not train.x and training.y.
  take([&](const Param& key) { return key.name == prefix || key.name.starts_with(prefix + "."); });
  take([&](const Param& key) { return key.name.starts_with(prefix); });
  take([&](const Param& key) { return key.name.ends_with("." + prefix); });
  if (!chosen.empty()) return chosen;
  std::vector<std::string> names;
  for (const Param& key : all) names.push_back(key.name);
  throw UsageError(fmt::format("no recipe key begins with {}", prefix),
                   recipe::hint_for_key(prefix, names));
}

/// Returns the keys at each prefix, once each, in the order of the prefixes; all keys without any.
std::vector<Param> chosen_keys(const std::vector<std::string>& prefixes) {
  std::vector<Param> all = all_keys();
  if (prefixes.empty()) return all;
  std::vector<Param> chosen;
  std::set<std::string> names;
  for (const std::string& prefix : prefixes)
    for (Param& key : keys_at(prefix, all))
      if (names.insert(key.name).second) chosen.push_back(std::move(key));
  return chosen;
}

std::string section_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// Prints keys, with a blank line between sections.
void print_keys(const std::vector<Param>& keys) {
  const std::size_t columns = terminal_columns();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i > 0 && section_of(keys[i].name) != section_of(keys[i - 1].name)) print("\n");
    print("{} = {}\n", keys[i].name, value_text(keys[i], keys[i].fallback));
    print("{}\n", wrapped(keys[i].expects(), columns, kIndent, kIndent));
    print("{}\n", wrapped(keys[i].help, columns, kIndent, kIndent));
  }
}

/// Prints the names of augmentations, for `keys augment`.
void print_ops() {
  const std::size_t columns = terminal_columns();
  for (const OpDeclaration& op : op_declarations())
    print("{}{}\n{}\n", kAugment, op.name, wrapped(op.help, columns, kIndent, kIndent));
  print_unless_quiet("\n{} augment.OP lists the parameters of OP\n", in_own_name("millrace keys"));
}

Exit keys(const KeysArguments& arguments) {
  load_recipe(arguments.overrides);  // for its plugins
  const std::vector<std::string>& prefixes = arguments.prefixes;
  const bool only_ops =
      prefixes.size() == 1 && (prefixes[0] == "augment" || prefixes[0] == kAugment);
  const std::vector<Param> chosen = chosen_keys(prefixes);
  if (verbosity().json) {
    Json json{{"command", "keys"}, {"keys", Json::array()}};
    for (const Param& key : chosen) json["keys"].push_back(key_json(key));
    print("{}\n", study::to_text(json, 2));
  } else if (only_ops) {
    print_ops();
  } else if (prefixes.empty()) {
    std::vector<Param> keys_only;
    std::copy_if(chosen.begin(), chosen.end(), std::back_inserter(keys_only),
                 [](const Param& key) { return !key.name.starts_with(kAugment); });
    print_keys(keys_only);
    print_unless_quiet("\n{} augment lists the augmentations\n", in_own_name("millrace keys"));
  } else {
    print_keys(chosen);
  }
  return Exit::done;
}

}  // namespace

void add_keys(CLI::App& app, Command& chosen) {
  auto* command =
      app.add_subcommand("keys", "list recipe keys: default, unit, valid values, meaning");
  auto arguments = std::make_shared<KeysArguments>();
  auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("prefix", *words,
                      "[PREFIX ...]: sections, beginnings of keys, or their last parts; augment.OP "
                      "for the parameters of an augmentation; plugins.path=... adds those of "
                      "plugins");
  add_common(*command);
  command->footer(
      "Example:\n  millrace keys loader\n  millrace keys lr loader.batch\n"
      "  millrace keys augment.random_affine");
  command->callback([arguments, words, &chosen] {
    for (const std::string& word : *words) {
      if (recipe::is_override(word))
        arguments->overrides.push_back(word);
      else
        arguments->prefixes.push_back(word);
    }
    chosen = [arguments](const ProgramStart&) { return keys(*arguments); };
  });
}

// millrace recipe: prints a recipe with all its keys, or the names of the shipped recipes.

namespace {

namespace fs = std::filesystem;

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
  print_unless_quiet("\n{} NAME prints one with all its keys\n", in_own_name("millrace recipe"));
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
