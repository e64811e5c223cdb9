// Parts of millrace sweep: the identity of a run, its runs and its output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/recipe.h"
#include "study/records/run_directory.h"
#include "study/sweep/design.h"
#include "study/sweep/sweep_command.h"
#include "study/sweep/sweep_record.h"
#include "study/sweep/sweep_table.h"
#include "tools/commands/study_data.h"
#include "tools/commands/sweep_arguments.h"
#include "tools/commands/sweep_question.h"
#include "tools/launch/launch.h"

namespace CLI {
class App;
}

namespace millrace::tools {

// Identity of a run: its recipe, the program and the data set.

/// Computes the identities of one sweep's runs; reads each file once.
class SweepKeys {
 public:
  /// Hashes the program, its own libraries, and the loaded plugins.
  SweepKeys();

  /// Returns the identity of a run of `recipe` with `seed`; `copy` is 0. Opens the data sets, and
  /// throws as open_data() does.
  study::RunIdentity identity(const Recipe& recipe, std::uint64_t seed);
  /// Returns the hash of the program, its libraries and plugins.
  const std::string& binary() const { return binary_; }

 private:
  std::string fingerprints(const Recipe& recipe);

  std::string binary_;
  std::map<std::string, std::string> fingerprints_;  ///< by the keys that select a data set
};

/// Identities of all runs that a question asks for, block by block.
class SweepIdentities {
 public:
  /// `question` must outlive it.
  explicit SweepIdentities(const Question& question);

  /// Computes the blocks up to `repeats`. Opens the data sets the first time.
  void plan(std::uint64_t repeats);
  /// Returns the identity of a planned run.
  const study::RunIdentity& of(const study::SweepRun& run) const;
  /// Returns its key; empty for a cell that is refused.
  const std::string& key(const study::SweepRun& run) const;
  /// Returns what tells a planned block from any other: a hash of its runs' keys.
  std::string block(std::uint64_t repeat) const;

 private:
  const Question& question_;
  std::optional<SweepKeys> keys_;                            ///< empty: runs of a command
  std::map<std::string, std::uint64_t> copies_;              ///< number of runs per identity so far
  std::vector<std::vector<study::RunIdentity>> identities_;  ///< by repeat, then cell
  std::vector<std::vector<std::string>> planned_;            ///< their keys
};

// Runs of a sweep over any program.

/// Executes a command for cells of a design, and reads the figures that its runs leave.
///   runs/NAME/stdout.txt, stderr.txt   its output
///   runs/NAME/run/                     {run}: whatever it writes there
class CommandRuns {
 public:
  /// `command` must outlive it.
  CommandRuns(const study::SweepCommand& command, const std::filesystem::path& runs);

  /// Returns the identity of a run: the command's words for that cell, folder and shell. The files
  /// of the program are not part of it.
  study::RunIdentity identity(const study::SweepCell& cell, std::uint64_t repeat) const;

  /// Runs the command. Returns 0 and sets `record.command`; or another exit code and, as last_line,
  /// why the run failed. Throws UsageError if the command is not found.
  ChildResult run(const study::SweepCell& cell, study::SweepRecord& record,
                  const std::function<void()>& meanwhile) const;

  /// Reads metrics that the record lacks, because an earlier sweep did not ask for them. Throws
  /// UsageError if the run has no such number.
  void complete(const study::SweepCell& cell, study::SweepRecord& record) const;

  /// Returns "wall_s 1.234, loss=([0-9.]+) 0.123".
  std::string figures_text(const study::SweepRecord& record) const;

 private:
  study::PlaceholderValues values(const study::SweepCell& cell,
                                  const study::SweepRecord& record) const;
  std::filesystem::path file_of(const study::CommandMetric& metric,
                                const study::PlaceholderValues& values) const;

  const study::SweepCommand& command_;
  std::filesystem::path runs_;
};

// Runs the planned processes of a sweep one after another, skipping finished ones.

/// Differences of the runs of one attempt at a block of a planned sweep from those of a sweep that
/// has its directory for itself.
struct BlockAttempt {
  std::uint64_t first_number = 1;   ///< number of its first run
  std::function<void()> meanwhile;  ///< called some 50 times per second during runs
};

/// Runs blocks of a sweep in a directory that no other process writes to: a local sweep's own, or
/// that of an attempt at one block.
class SweepRunner {
 public:
  /// Removes what unfinished runs have left. The caller holds the directory's lock, or has claimed
  /// the block of the attempt. `question` and `identities` must outlive the runner.
  SweepRunner(std::filesystem::path sweep, const Question& question, SweepIdentities& identities,
              std::optional<BlockAttempt> attempt = {});

  /// Returns how many runs the first `repeats` blocks have.
  std::size_t planned(std::uint64_t repeats) const;
  /// Returns how many planned runs of the first `repeats` blocks are finished.
  std::size_t finished(std::uint64_t repeats);
  /// Returns how many finished runs in the directory are not planned ones, such as those of another
  /// program or data set.
  std::size_t unplanned_runs(std::uint64_t repeats);
  /// Runs the unfinished part of the blocks from `first` up to `repeats`, one after another. Throws
  /// the error of a run that fails, and Error{interrupted}. The rows of a study that lack a device
  /// or are refused keep the reason, and so do those of a command that fails; throws RunError if it
  /// fails in all rows.
  void run(std::uint64_t repeats, std::uint64_t first = 0);
  /// Returns the records after run(repeats), per cell by repeat; none for a cell with a refusal.
  /// Throws UsageError if a run has no such metric, except in a study.
  std::vector<std::vector<study::SweepRecord>> records(std::uint64_t repeats) const;
  /// Returns the records of these blocks, which have finished.
  std::vector<std::vector<study::SweepRecord>> records(std::span<const std::uint64_t> blocks) const;
  /// Returns per cell why it was not run; empty texts for the others.
  const std::vector<std::string>& refusals() const { return refusals_; }
  /// Notes that a cell was not run, unless that is known.
  void refuse(std::size_t cell, const std::string& reason);

 private:
  class Progress;

  bool is_left(const study::SweepRun& run) const;
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
  SweepIdentities& identities_;
  std::optional<CommandRuns> commands_;  ///< of a command
  study::SweepIndex index_;
  std::string session_;
  std::function<void()> meanwhile_;
  std::uint64_t next_number_ = 1;
};

// Steps that a local sweep and a planned one share.

/// A sweep's directory, and the lock that is held while it is written.
struct SweepFolder {
  std::filesystem::path path;
  std::optional<study::RunLock> lock;
};

/// A sweep whose directory is ready.
struct PreparedSweep {
  bool is_resumed = false;
  StudyData data;
  Question question;
  SweepFolder folder;
};

/// Finds the sweep to resume, or makes the directory of a new one; errors come first.
PreparedSweep prepare_sweep(SweepArguments& arguments);
/// Returns what sweep.json says first.
nlohmann::ordered_json heading_of_sweep(const Question& question);
/// Prints the results and writes them into the sweep's directory.
void publish_sweep(const study::SweepTable& table, nlohmann::ordered_json json,
                   const std::filesystem::path& path, bool wide);
/// Returns the exit code of a sweep that has its table: a failed command counts. `again` says how
/// to repeat it.
Exit ending_of_sweep(const SweepRunner& runner, const Question& question, const char* again);

// Planned sweeps, whose blocks several hosts run.

/// Returns whether the arguments are about one.
bool is_of_planned_sweep(const SweepArguments& arguments);
/// Plans, runs, watches, submits or collects blocks.
Exit run_planned_sweep(const SweepArguments& arguments);
/// Adds the options of planned sweeps.
void add_block_options(CLI::App& command, SweepArguments& arguments);

// Prints a sweep's table and writes it as CSV.

/// Prints the table and its notes, at most as wide as the terminal, or `wide`. `sweep` is named as
/// the place of the columns that are left out.
void print_table(const study::SweepTable& table, const std::filesystem::path& sweep, bool wide);

/// Writes table.csv and runs.csv into the sweep's directory.
void write_tables(const study::SweepTable& table, const std::filesystem::path& sweep);

}  // namespace millrace::tools
