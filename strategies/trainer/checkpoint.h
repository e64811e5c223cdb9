// A checkpoint on disk: a folder that appears whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

namespace millrace::train {

struct CheckpointOptions {
  bool best = false;  ///< point `best` at it
  int keep = 2;       ///< newest ones that stay; the best stays besides them
};

/// Makes run/checkpoints/step-N: `write` fills step-N.tmp, which is synced and renamed, then `last`
/// is pointed at it and older ones are removed. Whatever fails, nothing is left under a final name,
/// and the error (RunError) names the file. Returns the folder.
std::filesystem::path write_checkpoint(
    const std::filesystem::path& run, std::uint64_t step, const CheckpointOptions& options,
    const std::function<void(const std::filesystem::path&)>& write);

/// The checkpoint that a run is resumed from: where `last` points, or the newest one where it
/// points nowhere; empty if there is none yet.
std::filesystem::path last_checkpoint(const std::filesystem::path& run);

/// All that stand in the run's directory, the newest first, under the names that last_checkpoint()
/// gives.
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& run);

/// The weights that `what` stands for: a run directory (its last checkpoint), a checkpoint's
/// folder, or a .safetensors file; the averaged ones where they were kept. Throws DataError where
/// there are none.
std::filesystem::path find_weights(const std::filesystem::path& what);
/// The config.toml that belongs to it; throws DataError where there is none.
std::filesystem::path find_config(const std::filesystem::path& what);

}  // namespace millrace::train
