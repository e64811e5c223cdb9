// Runs what a sweep has planned, one process after the other, and leaves out what is finished.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "millrace/recipe.h"
#include "study/sweep/design.h"
#include "study/sweep/sweep_index.h"
#include "tools/commands/sweep_key.h"

namespace millrace::tools {

class SweepRunner {
 public:
  /// `recipe_name`: what children are to be given first; may be empty. `recipes`: one a cell.
  /// Removes what unfinished runs have left: the caller holds the sweep's lock.
  SweepRunner(std::filesystem::path sweep, const study::SweepDesign& design,
              std::string recipe_name, std::vector<Recipe> recipes);

  /// Planned runs of the first `repeats` blocks that are finished.
  std::size_t finished(std::uint64_t repeats);
  /// Finished runs of the directory that are none of these: of another program, data set ...
  std::size_t strangers(std::uint64_t repeats);
  /// Runs the blocks up to `repeats` as far as they are not finished. Throws the error of a run
  /// that fails, and Error{interrupted}.
  void run(std::uint64_t repeats);
  /// What there is after run(repeats): of each cell by repeat.
  std::vector<std::vector<study::SweepRecord>> records(std::uint64_t repeats) const;

 private:
  void plan(std::uint64_t repeats);
  void run_one(const study::SweepRun& run, std::size_t done, std::size_t all);
  std::string label(const study::SweepRun& run) const;
  std::filesystem::path runs() const { return sweep_ / "runs"; }

  std::filesystem::path sweep_;
  const study::SweepDesign& design_;
  std::string recipe_name_;
  std::vector<Recipe> recipes_;
  SweepKeys keys_;
  study::SweepIndex index_;
  std::map<std::string, std::uint64_t> copies_;              ///< of an identity, so far
  std::vector<std::vector<study::RunIdentity>> identities_;  ///< by repeat, then cell
  std::vector<std::vector<std::string>> planned_;            ///< their keys
  std::string session_;
  std::uint64_t next_number_ = 1;
};

}  // namespace millrace::tools
