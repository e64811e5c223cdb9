// The question that a sweep asks: the design, the recipe of each cell, metrics and repeats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/recipe.h"
#include "study/sweep/design.h"
#include "study/sweep/sweep_command.h"
#include "study/sweep/sweep_table.h"
#include "tools/commands/sweep_arguments.h"

namespace millrace::tools {

/// The sweep that the command line asks for.
struct Question {
  std::string recipe_name;
  study::SweepDesign design;
  std::vector<std::optional<Recipe>> recipes;  ///< per cell, with model.ops resolved
  std::vector<std::string> refusals;           ///< per cell: why a study's row has no recipe
  std::string ops;                             ///< resolved value of model.ops=auto
  std::vector<study::SweepMetric> metrics;
  std::optional<std::uint64_t> repeats;  ///< empty: auto
  bool is_study = false;
  std::optional<study::SweepCommand> command;  ///< recipes then hold the sweep's own keys only

  /// Returns the recipe of the first cell that has one. Throws UsageError if none has.
  const Recipe& first() const;
  study::ComparisonRules rules() const;
  /// Returns the recipe of a cell in a block but for the seed: with sweep.folds, each block has a
  /// fold of its own. The cell has a recipe.
  Recipe recipe_of(std::size_t cell, std::uint64_t repeat) const;
};

/// With sweep.folds, a sweep has as many repeats unless `arguments` say otherwise. Throws
/// UsageError where it does not go with the rest.
void choose_folds(SweepArguments& arguments, Question& question);

/// Builds the question. `ops` is the resolved model.ops=auto of a resumed sweep; empty for a new
/// one. Throws UsageError, also for a sweep in which nothing is swept. The rows of a study are
/// refused one by one instead.
Question question_of(const SweepArguments& arguments, const std::string& ops);

}  // namespace millrace::tools
