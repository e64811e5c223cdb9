// A sweep's directory read back: the table that it printed, or what there is of it so far.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "study/sweep/sweep_table.h"

namespace millrace::study {

struct SweepFiles {
  /// Of sweep.json, or, while there is none, of those repeats in which every combination has
  /// finished. Empty where there is no such repeat.
  std::optional<SweepTable> table;
  bool finished = false;  ///< there is a sweep.json
  std::string recipe;
  /// While it is not finished: all finished runs of the newest program, in the order of their
  /// names.
  std::vector<SweepRecord> runs;
  std::size_t begun = 0;  ///< runs that have a record, finished or not
};

/// Throws DataError where a file is damaged.
SweepFiles read_sweep(const std::filesystem::path& path);

}  // namespace millrace::study
