// Reads a sweep's arguments, and the study file that they name.
#include "tools/commands/sweep_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/record_file.h"
#include "millrace/error.h"
#include "recipe/recipe_file.h"
#include "study/sweep/design.h"
#include "study/sweep/study_file.h"
#include "tools/training/setup.h"

namespace millrace::tools {

namespace fs = std::filesystem;

bool names_plugins(const std::string& word) { return word.starts_with("plugins.path="); }

bool SweepArguments::says_what() const {
  return command || !study.empty() || !cells.empty() ||
         !std::all_of(recipe.begin(), recipe.end(), names_plugins);
}

std::vector<std::string> command_metrics(const SweepArguments& arguments) {
  return arguments.metrics.empty() ? std::vector<std::string>{"wall"} : arguments.metrics;
}

std::string folder_of(const SweepArguments& arguments) {
  return arguments.folder.empty() ? fs::current_path().string() : arguments.folder;
}

std::string metrics_of(const SweepArguments& arguments) {
  if (arguments.command) return fmt::format("{}", fmt::join(command_metrics(arguments), ","));
  return arguments.metrics.empty() ? "images_per_s"
                                   : fmt::format("{}", fmt::join(arguments.metrics, ","));
}

void take_study(SweepArguments& arguments) {
  if (arguments.command) {
    if (arguments.brief)
      throw UsageError("--short belongs to a study file, not to --command",
                       "millrace sweep STUDY.toml --short");
    return;
  }
  if (arguments.shell || arguments.timeout_s)
    if (!arguments.resume)
      throw UsageError(
          fmt::format("--{} belongs to --command", arguments.shell ? "shell" : "timeout"),
          "millrace sweep --command 'python train.py --workers {workers}' workers=0,2");
  if (arguments.recipe.empty() || recipe::is_override(arguments.recipe[0])) {
    if (arguments.brief && !arguments.resume)
      throw UsageError("--short belongs to a study file", "millrace sweep STUDY.toml --short");
    return;
  }
  const std::string& name = arguments.recipe[0];
  std::error_code error;
  fs::path file = name;
  for (const fs::path& folder : recipe_folders())
    if (!fs::is_regular_file(file, error)) file = folder / "studies" / (name + ".toml");
  const std::string text = base::read_record(file);
  if (!study::is_study(text)) {
    if (arguments.brief)
      throw UsageError(fmt::format("--short: {} is not a study file", name),
                       "a study file has rows ([[row]]); shipped ones are s0 to s4");
    return;
  }
  const study::Study study = study::parse_study(text, file.string());
  if (!arguments.cells.empty() || arguments.design)
    throw UsageError(fmt::format("{} has its own rows: it takes no {}", name,
                                 arguments.design ? "--design" : "--cell"),
                     "add a [[row]] to a copy of the file");
  arguments.recipe.erase(arguments.recipe.begin());
  for (const std::string& word : arguments.recipe)
    if (!recipe::is_override(word) ||
        (word.find("+=") == std::string::npos && study::parse_axis(word).values.size() > 1))
      throw UsageError(fmt::format("{}: a study's rows are in its file", word),
                       "after the file, key=value sets a key of all rows");
  arguments.study = text;
  arguments.study_file = file.string();
  arguments.design = "study";
  if (!arguments.repeats) arguments.repeats = study.repeats;
  if (arguments.metrics.empty()) arguments.metrics = {study.metric};
}

}  // namespace millrace::tools
