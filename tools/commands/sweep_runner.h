// Runs the planned processes of a sweep one after another, skipping finished ones.
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
  /// `recipe_name` is the children's first argument; may be empty. `recipes` holds one per cell.
  /// Removes what unfinished runs have left. The caller holds the sweep's lock.
  SweepRunner(std::filesystem::path sweep, const study::SweepDesign& design,
              std::string recipe_name, std::vector<Recipe> recipes);

  /// Returns how many planned runs of the first `repeats` blocks are finished.
  std::size_t finished(std::uint64_t repeats);
  /// Returns how many finished runs in the directory are not planned ones, such as those of another
  /// program or data set.
  std::size_t strangers(std::uint64_t repeats);
  /// Runs the unfinished part of the blocks up to `repeats`. Throws the error of a run that fails,
  /// and Error{interrupted}.
  void run(std::uint64_t repeats);
  /// Returns the records after run(repeats), per cell by repeat.
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
  std::map<std::string, std::uint64_t> copies_;              ///< number of runs per identity so far
  std::vector<std::vector<study::RunIdentity>> identities_;  ///< by repeat, then cell
  std::vector<std::vector<std::string>> planned_;            ///< their keys
  std::string session_;
  std::uint64_t next_number_ = 1;
};

}  // namespace millrace::tools
