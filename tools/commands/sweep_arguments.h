// Arguments of `millrace sweep`, their record in the sweep's directory, and what they ask for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/recipe.h"
#include "study/sweep/study_file.h"
#include "study/sweep/sweep_command.h"
#include "study/sweep/sweep_metric.h"
#include "study/sweep/sweep_table.h"

namespace millrace::tools {

/// Arguments as given. Missing ones come from the resumed sweep, or are defaults.
struct SweepArguments {
  std::vector<std::string> recipe;  ///< [RECIPE] key=value ..., or [STUDY.toml] key=value ...
  std::vector<std::string> cells;
  std::optional<std::string> design;
  std::optional<std::string> repeats;
  std::vector<std::string> metrics;
  std::string run;
  bool resume = false;
  bool wide = false;
  bool brief = false;  ///< --short

  std::optional<std::string> command;  ///< --command: runs this in place of millrace train
  std::optional<std::string> shell;
  std::optional<double> timeout_s;
  std::string folder;  ///< where the command runs; empty: here

  std::string
      study;  ///< text of a study file; empty: none. Its name is no longer in `recipe` then.
  std::string study_file;
  std::string data;  ///< data.path=... that a study's sweep has chosen

  /// Returns whether the arguments define a sweep. plugins.path=... alone only says what may be
  /// loaded.
  bool says_what() const;
};

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
  study::SweepMargins margins() const;
};

/// Reads the study file that the first word of `recipe` names, if it names one: a path, or the name
/// of a shipped study. Throws UsageError for a malformed file and for options that do not go with
/// one.
void take_study(SweepArguments& arguments);

/// Returns the sweep to resume; empty if a new one is to begin. Completes `arguments`.
std::filesystem::path find_resumed(SweepArguments& arguments);
/// Returns the resolved model.ops of the sweep at `path`.
std::string ops_at(const std::filesystem::path& path);
/// Writes design.json.
void write_design(const std::filesystem::path& path, const SweepArguments& arguments,
                  const std::string& ops);

/// Builds the question. `ops` is the resolved model.ops=auto of a resumed sweep; empty for a new
/// one. Throws UsageError, also for a sweep in which nothing is swept. The rows of a study are
/// refused one by one instead.
Question question_of(const SweepArguments& arguments, const std::string& ops);

}  // namespace millrace::tools
