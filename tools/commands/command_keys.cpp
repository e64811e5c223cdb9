// millrace keys: lists recipe keys, and the parameters of augmentations, as they are declared.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/suggest.h"
#include "pipeline/recipe/key_hints.h"
#include "pipeline/recipe/recipe_file.h"
#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/commands/key_text.h"
#include "tools/terminal/console.h"
#include "tools/terminal/output.h"
#include "tools/training/pipeline_setup.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kAugment = "augment.";
constexpr std::string_view kIndent = "    ";

struct KeysArguments {
  std::string prefix;
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

/// Returns the keys that begin with `prefix`, or else those whose last part it is. Throws
/// UsageError if there are none.
std::vector<Param> chosen_keys(const std::string& prefix) {
  const std::vector<Param> all = all_keys();
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
                   pipeline::hint_for_key(prefix, names));
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
  print("\nmillrace keys augment.OP lists the parameters of OP\n");
}

Exit keys(const KeysArguments& arguments) {
  load_recipe(arguments.overrides);  // for its plugins
  const std::string& prefix = arguments.prefix;
  const bool only_ops = prefix == "augment" || prefix == kAugment;
  const std::vector<Param> chosen = chosen_keys(prefix);
  if (verbosity().json) {
    Json json{{"command", "keys"}, {"keys", Json::array()}};
    for (const Param& key : chosen) json["keys"].push_back(key_json(key));
    print("{}\n", study::to_text(json, 2));
  } else if (only_ops) {
    print_ops();
  } else if (prefix.empty()) {
    std::vector<Param> keys_only;
    std::copy_if(chosen.begin(), chosen.end(), std::back_inserter(keys_only),
                 [](const Param& key) { return !key.name.starts_with(kAugment); });
    print_keys(keys_only);
    print("\nmillrace keys augment lists the augmentations\n");
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
                      "[PREFIX]: a section, the beginning of a key, or its last part; augment.OP "
                      "for the parameters of an augmentation; plugins.path=... adds those of "
                      "plugins");
  add_common(*command);
  command->footer(
      "Example:\n  millrace keys loader\n  millrace keys lr\n"
      "  millrace keys augment.random_affine");
  command->callback([arguments, words, &chosen] {
    for (const std::string& word : *words) {
      if (pipeline::is_override(word))
        arguments->overrides.push_back(word);
      else if (arguments->prefix.empty())
        arguments->prefix = word;
      else
        throw UsageError(fmt::format("keys: two prefixes: {} and {}", arguments->prefix, word),
                         "give one, or none for all keys");
    }
    chosen = [arguments](const ProgramStart&) { return keys(*arguments); };
  });
}

}  // namespace millrace::tools
