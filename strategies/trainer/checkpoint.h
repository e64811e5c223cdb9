// Checkpoints on disk: folders that appear whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/private_api.h"

namespace millrace::train {

struct CheckpointOptions {
  bool best = false;  ///< also point `best` at it
  int keep = 2;       ///< number of newest ones to keep, besides the best
};

/// Makes run/checkpoints/step-N. `write` fills step-N.tmp, which is synced and renamed; then `last`
/// points at it and older ones are removed. If anything fails, no incomplete folder has a final
/// name, and the RunError names the file. Returns the folder.
MILLRACE_PRIVATE_API std::filesystem::path write_checkpoint(
    const std::filesystem::path& run, std::uint64_t step, const CheckpointOptions& options,
    const std::function<void(const std::filesystem::path&)>& write);

/// Returns the checkpoint to resume from: the target of `last` or, if it has none, the newest.
/// Empty if there is none yet.
MILLRACE_PRIVATE_API std::filesystem::path last_checkpoint(const std::filesystem::path& run);

/// Returns all checkpoints of the run, newest first, named as by last_checkpoint().
MILLRACE_PRIVATE_API std::vector<std::filesystem::path> checkpoints_of(
    const std::filesystem::path& run);

/// Returns the weights that `what` names: a run directory (its last checkpoint), a checkpoint's
/// folder, or a .safetensors file. Prefers averaged weights if they were kept. Throws DataError if
/// there are none.
MILLRACE_PRIVATE_API std::filesystem::path find_weights(const std::filesystem::path& what);
/// Returns the config.toml that belongs to `what`. Throws DataError if there is none.
MILLRACE_PRIVATE_API std::filesystem::path find_config(const std::filesystem::path& what);

}  // namespace millrace::train
