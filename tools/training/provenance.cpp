// Compares the values of a recipe with the command line and the signed record.

#include "tools/training/provenance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <system_error>
#include <variant>

#include "base/record_file.h"
#include "millrace/error.h"
#include "pipeline/readers/url.h"
#include "plugins/host/registry.h"
#include "recipe/recipe_file.h"
#include "study/records/signature.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

bool is_inert(const std::string& key) {
  return std::find(kInertTexts.begin(), kInertTexts.end(), key) != kInertTexts.end();
}

/// Keys of free text whose values differ from their defaults, and the values.
using Texts = std::vector<std::pair<std::string, std::string>>;

/// Returns whether an op comes from a loaded plugin. Texts of built-in ops name other ops.
bool is_foreign(const std::string& op) {
  const auto all = plugins::plugins();
  return std::any_of(all.begin(), all.end(), [&](const plugins::PluginEntry& plugin) {
    const std::span units(plugin.table->units, plugin.table->unit_count);
    return !plugin.file.empty() &&
           std::any_of(units.begin(), units.end(),
                       [&](const millrace_unit* unit) { return unit->name == op; });
  });
}

/// Adds the texts of one chain's ops.
void add_texts(const std::vector<OpSpec>& chain, const std::string& prefix, Texts& texts) {
  for (const OpSpec& spec : chain)
    for (const OpDeclaration& op : op_declarations())
      for (const Param& param : op.params)
        if (op.name == spec.op && param.type == Param::Type::text &&
            spec.params.at(param.name) != param.fallback && is_foreign(op.name))
          texts.emplace_back(fmt::format("{}.{}.{}", prefix, spec.id, param.name),
                             spec.params.text(param.name));
}

Texts texts_of(const Recipe& recipe) {
  Texts texts;
  for (const Param& key : recipe_keys())
    if (key.type == Param::Type::text && !is_inert(key.name) && key.name != "plugins.path" &&
        recipe.at(key.name) != key.fallback)
      texts.emplace_back(key.name, recipe.text(key.name));
  add_texts(recipe.augment(), "augment", texts);
  add_texts(recipe.eval_augment(), "eval.augment", texts);
  return texts;
}

}  // namespace

Provenance::Provenance(const fs::path& config, std::vector<std::string> typed)
    : config_(config), run_(config.parent_path()), typed_(std::move(typed)) {
  const std::string text = base::read_record(config);
  if (!study::is_signed(run_, config.filename().string(), text)) return;
  for (auto& value : recipe::recipe_values(text, config.string())) signed_.insert(std::move(value));
}

bool Provenance::is_granted(const std::string& key, const std::string& toml) const {
  return signed_.contains({key, toml}) ||
         std::any_of(typed_.begin(), typed_.end(),
                     [&](const std::string& word) { return word.starts_with(key + "="); });
}

bool Provenance::lies_in(const std::string& path, const fs::path& folder) {
  if (pipeline::is_remote(path)) return false;
  std::error_code error;
  const fs::path there = fs::canonical(path, error);
  if (error) return false;
  const fs::path here = fs::canonical(folder.empty() ? fs::path(".") : folder, error);
  return !error &&
         std::mismatch(here.begin(), here.end(), there.begin(), there.end()).first == here.end();
}

void Provenance::check(const Recipe& recipe) const {
  std::vector<std::string> keys, words;
  for (const auto& [key, value] : texts_of(recipe)) {
    if (is_granted(key, to_toml(value)) || lies_in(value, run_)) continue;
    keys.push_back(key);
    words.push_back(shell_word(key + "=" + value));
  }
  if (keys.empty()) return;
  throw UsageError(
      fmt::format("{} is not signed with your key and names what lies outside of its directory: {}",
                  config_.string(), fmt::join(keys, ", ")),
      fmt::format("if you trust it, repeat the values: add {}", fmt::join(words, " ")));
}

}  // namespace millrace::tools
