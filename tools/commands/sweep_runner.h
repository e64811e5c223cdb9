// Runs the planned processes of a sweep one after another, skipping finished ones.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "study/sweep/design.h"
#include "study/sweep/sweep_index.h"
#include "tools/commands/sweep_arguments.h"
#include "tools/commands/sweep_command_runs.h"
#include "tools/commands/sweep_key.h"
#include "tools/launch/child.h"

namespace millrace::tools {

class SweepRunner {
 public:
  /// Removes what unfinished runs have left. The caller holds the sweep's lock. `question` must
  /// outlive the runner.
  SweepRunner(std::filesystem::path sweep, const Question& question);

  /// Returns how many runs the first `repeats` blocks have.
  std::size_t planned(std::uint64_t repeats) const;
  /// Returns how many planned runs of the first `repeats` blocks are finished.
  std::size_t finished(std::uint64_t repeats);
  /// Returns how many finished runs in the directory are not planned ones, such as those of another
  /// program or data set.
  std::size_t unplanned_runs(std::uint64_t repeats);
  /// Runs the unfinished part of the blocks up to `repeats`. Throws the error of a run that fails,
  /// and Error{interrupted}. The rows of a study that lack a device or are refused keep the reason,
  /// and so do those of a command that fails; throws RunError if it fails in all rows.
  void run(std::uint64_t repeats);
  /// Returns the records after run(repeats), per cell by repeat; none for a cell with a refusal.
  /// Throws UsageError if a run has no such metric, except in a study.
  std::vector<std::vector<study::SweepRecord>> records(std::uint64_t repeats) const;
  /// Returns per cell why it was not run; empty texts for the others.
  const std::vector<std::string>& refusals() const { return refusals_; }

 private:
  class Progress;

  void plan(std::uint64_t repeats);
  void run_one(const study::SweepRun& run, Progress& progress);
  std::vector<std::string> command_of(const study::SweepRun& run,
                                      const study::SweepRecord& record) const;
  ChildResult execute(const study::SweepRun& run, study::SweepRecord& record,
                      const std::filesystem::path& log, Progress& progress) const;
  bool is_refusal(const ChildResult& result) const;
  study::SweepRecord with_figures(std::size_t cell, study::SweepRecord record) const;
  std::string label(const study::SweepRun& run) const;
  std::filesystem::path runs() const { return sweep_ / "runs"; }

  std::filesystem::path sweep_;
  const Question& question_;
  std::vector<std::string> refusals_;
  std::optional<SweepKeys> keys_;        ///< of recipes
  std::optional<CommandRuns> commands_;  ///< of a command
  study::SweepIndex index_;
  std::map<std::string, std::uint64_t> copies_;              ///< number of runs per identity so far
  std::vector<std::vector<study::RunIdentity>> identities_;  ///< by repeat, then cell
  std::vector<std::vector<std::string>> planned_;            ///< their keys; empty: refused
  std::string session_;
  std::uint64_t next_number_ = 1;
};

}  // namespace millrace::tools
