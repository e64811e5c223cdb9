// Splits the words "[RECIPE] [key=value ...]", and explains words that are neither.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"

namespace millrace::recipe {

struct RecipeWords {
  std::string recipe;  ///< empty: none was given
  std::vector<std::string> overrides;
};

/// Returns the recipe and the overrides. Throws UsageError that tells how to write what was
/// probably meant: spaces around '=', a key and its value as two words, unquoted braces.
MILLRACE_PRIVATE_API RecipeWords recipe_words(const std::vector<std::string>& arguments);

/// Returns the override that an option of another program stands for: "--workers" and "4" give
/// "loader.workers=4". Empty if there is no such key. An answer with spaces is a sentence.
MILLRACE_PRIVATE_API std::string override_for_option(std::string_view option,
                                                     std::string_view value);

}  // namespace millrace::recipe
