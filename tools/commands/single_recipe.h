// Answers lists of values where one run is asked for.
#pragma once

#include <string>
#include <vector>

#include "millrace/recipe.h"

namespace millrace::tools {

/// Loads the recipe of one run as load_recipe() does. Where that fails for a key with several
/// values, such as loader.workers=0,1,2, throws a UsageError that proposes `millrace sweep`.
Recipe load_single_recipe(const std::vector<std::string>& words);

}  // namespace millrace::tools
