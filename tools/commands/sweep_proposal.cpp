// Recognises keys with several values.
#include "tools/commands/sweep_proposal.h"

#include <fmt/format.h>

#include <string_view>

#include "millrace/error.h"
#include "pipeline/recipe/recipe_file.h"
#include "study/sweep/design.h"
#include "tools/terminal/console.h"
#include "tools/training/pipeline_setup.h"

namespace millrace::tools {
namespace {

/// Returns whether a word is key=a,b,c. Throws UsageError for an empty value.
bool has_several_values(const std::string& word) {
  return word.find(',') != std::string::npos && pipeline::is_override(word) &&
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
