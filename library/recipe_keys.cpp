// Composes the recipe keys of all rooms, which a recipe is loaded and checked with.
#include <algorithm>
#include <iterator>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "augment/plan/plan_keys.h"
#include "millrace/recipe.h"
#include "models/model_keys.h"
#include "pipeline/setup/pipeline_keys.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"
#include "strategies/trainer/train_keys.h"
#include "study/sweep/sweep_keys.h"
#include "tools/commands/bench_keys.h"

namespace millrace {
namespace {

/// Returns the keys of all rooms, in the order of config.toml.
std::vector<Param> keys_of_all_rooms() {
  std::vector<Param> all;
  for (const auto keys_of :
       {pipeline::pipeline_keys, augment::plan_keys, train::model_keys, train::train_keys,
        tools::bench_keys, study::sweep_keys, train::debug_keys})
    std::ranges::move(keys_of(), std::back_inserter(all));
  // Keys outside all sections come first in a TOML file.
  std::stable_partition(all.begin(), all.end(),
                        [](const Param& key) { return key.name.find('.') == std::string::npos; });
  return all;
}

/// Adds a plugin's reader: a choice of data.reader, and a key data.READER.NAME for each of its
/// parameters.
void add_reader(std::vector<Param>& keys, const millrace_unit& reader) {
  const auto choice = std::find_if(keys.begin(), keys.end(),
                                   [](const Param& key) { return key.name == "data.reader"; });
  choice->choices.emplace_back(reader.name);
  auto place = std::find_if(keys.rbegin(), keys.rend(), [](const Param& key) {
                 return key.name.starts_with("data.");
               }).base();
  for (Param param : plugins::to_declaration(reader).params) {
    param.name = std::string("data.") + reader.name + "." + param.name;
    place = keys.insert(place, std::move(param)) + 1;
  }
}

}  // namespace

std::span<const Param> recipe_keys() {
  // Every list ever made is kept: a recipe goes on using the list that it was made with.
  static std::mutex mutex;
  static std::list<std::vector<Param>> lists;
  static std::size_t readers = 0;
  const std::lock_guard lock(mutex);
  if (lists.empty()) lists.push_back(keys_of_all_rooms());
  const auto known = plugins::plugin_readers();
  if (readers < known.size()) {
    std::vector<Param> more = lists.back();
    for (; readers < known.size(); ++readers) add_reader(more, *known[readers]);
    lists.push_back(std::move(more));
  }
  return lists.back();
}

Recipe::Recipe(std::span<const OpDeclaration> ops) : Recipe(ops, recipe_keys()) {}

Recipe Recipe::load(std::span<const OpDeclaration> ops, const std::string& recipe,
                    std::span<const std::string> overrides,
                    std::span<const std::filesystem::path> folders) {
  Recipe result(ops);
  result.read(recipe, overrides, folders);
  return result;
}

}  // namespace millrace
