// Joins the recipe keys of all rooms, in the order of config.toml.
#include "pipeline/recipe/recipe_keys.h"

#include <algorithm>
#include <iterator>
#include <list>

#include "millrace/recipe.h"

namespace millrace::pipeline {
namespace {

std::vector<Param> keys_of_all_rooms() {
  std::vector<Param> all;
  for (const auto keys_of :
       {pipeline_keys, augment::plan_keys, train::model_keys, train::train_keys, tools::bench_keys,
        study::sweep_keys, train::debug_keys})
    std::ranges::move(keys_of(), std::back_inserter(all));
  // Keys outside all sections come first in a TOML file.
  std::stable_partition(all.begin(), all.end(),
                        [](const Param& key) { return key.name.find('.') == std::string::npos; });
  return all;
}

/// Keeps every list ever made: a recipe goes on using the list that it was made with.
std::list<std::vector<Param>>& all_keys() {
  static std::list<std::vector<Param>> keys{keys_of_all_rooms()};
  return keys;
}

}  // namespace

void add_reader_keys(const std::string& reader, std::span<const Param> params) {
  std::vector<Param> all = all_keys().back();
  const auto choice = std::find_if(all.begin(), all.end(),
                                   [](const Param& param) { return param.name == "data.reader"; });
  choice->choices.push_back(reader);
  auto place = std::find_if(all.rbegin(), all.rend(), [](const Param& param) {
                 return param.name.starts_with("data.");
               }).base();
  for (Param param : params) {
    param.name = "data." + reader + "." + param.name;
    place = all.insert(place, std::move(param)) + 1;
  }
  all_keys().push_back(std::move(all));
}

}  // namespace millrace::pipeline

std::span<const millrace::Param> millrace::recipe_keys() { return pipeline::all_keys().back(); }
