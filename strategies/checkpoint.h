// A checkpoint on disk: a folder that appears whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace millrace {

/// Makes run/checkpoints/step-N: `write` fills step-N.tmp, which is synced and renamed, then `last`
/// is pointed at it. Whatever fails, nothing is left under a final name, and the error (RunError)
/// names the file. Returns the folder.
std::filesystem::path write_checkpoint(
    const std::filesystem::path& run, std::uint64_t step,
    const std::function<void(const std::filesystem::path&)>& write);

/// The weights that `what` stands for: a run directory (its last checkpoint), a checkpoint's
/// folder, or a .safetensors file. Throws DataError where there are none.
std::filesystem::path find_weights(const std::filesystem::path& what);
/// The config.toml that belongs to it; throws DataError where there is none.
std::filesystem::path find_config(const std::filesystem::path& what);

}  // namespace millrace
