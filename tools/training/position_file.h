// position.json in a checkpoint's folder: the run's position, and the checksum of every file beside
// it, which detects flipped bits.
#pragma once

#include <filesystem>
#include <string>

#include "strategies/trainer/trainer.h"

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

}  // namespace millrace::tools
