// Taking up a training run where its last checkpoint left off.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/recipe.h"
#include "strategies/trainer/trainer.h"
#include "study/records/run_directory.h"

namespace millrace::tools {

class Resume {
 public:
  /// `run`: the directory of a run that has begun; `texts`: "[RECIPE] [key=value ...]" as given,
  /// without a RECIPE the run's own config.toml. Throws UsageError where there is no such run.
  Resume(std::filesystem::path run, std::vector<std::string> texts);

  /// Whether there is no run at `run`.
  static bool nothing_at(const std::filesystem::path& run);

  /// What load_recipe() is to be given.
  const std::vector<std::string>& recipe() const { return texts_; }
  /// Finds the checkpoint. `alone`: locks the run first, as all do but the ranks beside rank 0.
  /// Throws UsageError where the run goes on, DataError for a checkpoint that is damaged.
  void take_up(bool alone);
  /// The recipe to go on with: its model.ops=auto is what the run has begun with. Throws
  /// UsageError, naming the keys, where it would not go on with the same training.
  Recipe checked(Recipe recipe) const;
  /// Empty where the run was ended before its first one: it then begins again.
  const std::optional<std::filesystem::path>& checkpoint() const { return checkpoint_; }
  const train::Position& position() const { return position_; }
  /// To be told how many steps the run is to have, and samples an epoch. True where it has taken
  /// them all and finished. One that was killed between its last step and its summary evaluates
  /// once more.
  bool finished(std::uint64_t steps, std::uint64_t epoch_samples);
  /// The run's directory, cut back to the checkpoint; once, and after take_up(true). Warns where
  /// the checkpoint was written at another SIMD level.
  study::RunDirectory open(const Recipe& recipe);

 private:
  std::filesystem::path run_;
  std::vector<std::string> texts_;
  std::optional<study::RunLock> lock_;
  std::optional<std::filesystem::path> checkpoint_;
  train::Position position_;
  std::string simd_;  ///< level that the checkpoint was written at; empty: not recorded
};

}  // namespace millrace::tools
