// position.json in a checkpoint's folder: how far the run had come, and the checksum of every file
// beside it, so that a flipped bit is not trained on.
#pragma once

#include <filesystem>
#include <string>

#include "strategies/trainer/trainer.h"

namespace millrace::tools {

struct SavedPosition {
  train::Position position;
  std::string simd;  ///< level that the checkpoint was written at; empty: not recorded
};

/// Writes it last, when all other files are there. Throws RunError.
void save_position(const train::Position& position, const std::filesystem::path& folder);

/// Throws DataError, naming the file that is damaged or missing. A checkpoint from before there
/// were checksums is taken as it is.
SavedPosition read_position(const std::filesystem::path& folder);

/// Throws DataError where the checkpoint that `file` belongs to, if to any, has another checksum
/// for it.
void check_checksum(const std::filesystem::path& file);

}  // namespace millrace::tools
