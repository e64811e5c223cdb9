// Tests that every declared choice of a recipe key has a value of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "augment/plan/choices.h"
#include "pipeline/setup/choices.h"
#include "strategies/trainer/train_choices.h"

namespace millrace::tools {
namespace {

/// Returns a function that reads a key as an enumeration, as a number.
template <typename Function>
std::function<int(const Recipe&)> number_of(Function function) {
  return [function](const Recipe& recipe) { return static_cast<int>(function(recipe)); };
}

TEST(RecipeChoices, EachDeclaredOneHasAValueOfItsOwn) {
  const std::map<std::string, std::function<int(const Recipe&)>> keys{
      {"loader.mode", number_of(pipeline::loader_mode_of)},
      {"loader.on_error", number_of(pipeline::on_error_of)},
      {"data.cache", number_of(pipeline::cache_of)},
      {"data.index", number_of(pipeline::index_use_of)},
      {"output.dtype", number_of(augment::dtype_of)},
      {"output.layout", number_of(augment::layout_of)},
      {"output.normalize", number_of(augment::normalize_of)},
      {"resample", number_of(augment::resample_of)},
      {"train.strategy", number_of(train::strategy_of)},
      {"train.clock", number_of(train::clock_of)},
      {"model.ops", number_of(train::ops_of)}};
  const auto declared = recipe_keys();
  for (const auto& [key, read] : keys) {
    const auto param = std::find_if(declared.begin(), declared.end(),
                                    [&](const Param& one) { return one.name == key; });
    ASSERT_NE(param, declared.end()) << key;
    ASSERT_GE(param->choices.size(), 2u) << key;
    std::set<int> values;
    for (const std::string& choice : param->choices) {
      Recipe recipe(op_declarations());
      recipe.set(key + "=" + choice);
      EXPECT_TRUE(values.insert(read(recipe)).second) << key << "=" << choice;
    }
  }
}

TEST(RecipeChoices, AChoiceWithoutAValueIsOurFault) {
  Recipe recipe(op_declarations());
  recipe.set("loader.mode=cached");
  EXPECT_THROW(recipe::choice_of<int>(recipe, "loader.mode", {{"normal", 0}}), std::logic_error);
}

}  // namespace
}  // namespace millrace::tools
