// position.json in a checkpoint's folder: the run's position, and the checksum of every file beside
// it, which detects flipped bits.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/recipe.h"
#include "strategies/trainer/trainer.h"
#include "study/records/run_directory.h"

namespace millrace::tools {

struct SavedPosition {
  train::Position position;
  std::string simd;  ///< SIMD level of the writer; empty: not recorded
};

/// Writes it last, after all other files. Throws RunError.
void save_position(const train::Position& position, const std::filesystem::path& folder);

/// Reads the position. Throws DataError with the file that is damaged or missing. Accepts
/// checkpoints from before there were checksums.
SavedPosition read_position(const std::filesystem::path& folder);

/// Throws DataError if `file` belongs to a checkpoint with another checksum for it.
void check_checksum(const std::filesystem::path& file);

// Resumes a training run from its last checkpoint (contract Exact resumption).

class Resume {
 public:
  /// `run` is the directory of a run that has begun. `texts` are the arguments "[RECIPE] [key=value
  /// ...]"; without a RECIPE the run's own config.toml applies. Throws UsageError if there is no
  /// such run.
  Resume(std::filesystem::path run, std::vector<std::string> texts);

  /// Returns whether there is no run at `run`.
  static bool nothing_at(const std::filesystem::path& run);

  /// Returns the arguments for load_recipe().
  const std::vector<std::string>& recipe() const { return texts_; }
  /// Finds the checkpoint. `alone`: locks the run first, as all processes except ranks other than 0
  /// do. Throws UsageError if the run is still going, DataError for a damaged checkpoint.
  void take_up(bool alone);
  /// Returns the recipe to continue with; model.ops=auto keeps the ops that the run began with.
  /// Throws UsageError with the keys that would change the training.
  Recipe checked(Recipe recipe) const;
  /// Returns the checkpoint; empty if the run ended before its first one and begins again.
  const std::optional<std::filesystem::path>& checkpoint() const { return checkpoint_; }
  const train::Position& position() const { return position_; }
  /// Returns whether the run has taken all of its `steps` and finished. Lets a run killed between
  /// its last step and its summary evaluate once more; `epoch_samples` is the size of an epoch.
  /// Call it before open().
  bool finished(std::uint64_t steps, std::uint64_t epoch_samples);
  /// Returns the run's directory, cut back to the checkpoint. Call it once, after take_up(true).
  /// Warns if the checkpoint was written at another SIMD level.
  study::RunDirectory open(const Recipe& recipe);

 private:
  std::filesystem::path run_;
  std::vector<std::string> texts_;
  std::optional<study::RunLock> lock_;
  std::optional<std::filesystem::path> checkpoint_;
  train::Position position_;
  std::string simd_;  ///< SIMD level of the checkpoint's writer; empty: not recorded
};

}  // namespace millrace::tools
