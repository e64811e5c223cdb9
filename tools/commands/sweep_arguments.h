// Arguments of millrace sweep.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

  bool plan = false;                 ///< --plan: only prepares the directory
  std::optional<std::string> block;  ///< --block: runs this block of a planned sweep
  bool collect = false;
  bool status = false;
  std::optional<std::string> on;  ///< --on: scheduler that gets the blocks
  std::string partition;
  std::string time;
  double patience_s = 30;  ///< without a heartbeat, until a block counts as abandoned

  std::string
      study;  ///< text of a study file; empty: none. Its name is no longer in `recipe` then.
  std::string study_file;
  std::string data;  ///< data.path=... that a study's sweep has chosen

  /// Returns whether the arguments define a sweep. plugins.path=... alone only says what may be
  /// loaded.
  bool says_what() const;
};

/// Returns whether a word is plugins.path=..., which says what may be loaded.
bool names_plugins(const std::string& word);
/// Returns the metrics of a sweep of --command: the wall time unless others are named.
std::vector<std::string> command_metrics(const SweepArguments& arguments);
/// Returns the folder in which the command runs.
std::string folder_of(const SweepArguments& arguments);
/// Returns all metrics, separated by commas.
std::string metrics_of(const SweepArguments& arguments);

/// Reads the study file that the first word of `recipe` names, if it names one: a path, or the name
/// of a shipped study. Throws UsageError for a malformed file and for options that do not go with
/// one.
void take_study(SweepArguments& arguments);

}  // namespace millrace::tools
