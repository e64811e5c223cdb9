// Proposes millrace sweep for lists of values.
#include "tools/commands/single_recipe.h"

#include <fmt/format.h>

#include <string_view>

#include "millrace/error.h"
#include "recipe/recipe_file.h"
#include "study/sweep/design.h"
#include "tools/launch/launch.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

/// Returns whether a word is key=a,b,c. Throws UsageError for an empty value.
bool has_several_values(const std::string& word) {
  return word.find(',') != std::string::npos && recipe::is_override(word) &&
         word.find("+=") == std::string::npos && study::parse_axis(word).values.size() > 1;
}

}  // namespace

Recipe load_single_recipe(const std::vector<std::string>& words) {
  try {
    return load_recipe(words);
  } catch (const UsageError& error) {
    for (const std::string& word : words) {
      // The error may be about another word.
      const auto key = word.substr(0, word.find('='));
      if (std::string_view(error.what()).find(key) == std::string_view::npos ||
          !has_several_values(word))
        continue;
      std::string command = "millrace sweep";
      for (const std::string& one : words) command += " " + shell_word(one);
      throw UsageError(fmt::format("{}: one run takes one value", word),
                       fmt::format("for a run of each: {}", command));
    }
    throw;
  }
}

}  // namespace millrace::tools
