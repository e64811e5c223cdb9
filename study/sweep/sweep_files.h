// Reads a sweep's directory: the table that it printed, or what exists of it so far.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "study/sweep/sweep_table.h"

namespace millrace::study {

struct SweepFiles {
  /// From sweep.json or, if there is none yet, from the repeats in which every combination has
  /// finished. Empty if there is no such repeat.
  std::optional<SweepTable> table;
  bool finished = false;  ///< sweep.json exists
  std::string recipe;
  /// While unfinished: all finished runs of the newest program, by name.
  std::vector<SweepRecord> runs;
  std::size_t begun = 0;  ///< runs that have a record, finished or not
};

/// Reads the directory. Throws DataError if a file is damaged.
SweepFiles read_sweep(const std::filesystem::path& path);

}  // namespace millrace::study
