// archives.json in a run's directory: name and SHA-256 of each archive of the run's data sets, so
// that a run is not resumed on other data.
#pragma once

#include <filesystem>
#include <vector>

#include "millrace/reader.h"

namespace millrace::tools {

/// Writes the file unless it is there already, or no set is made of archives. Throws RunError.
void record_archives(const std::filesystem::path& run, const std::vector<DatasetInfo>& sets);

/// Compares a set with what the run has recorded, if it has. With `hash`, where the run knows an
/// archive's SHA-256 and the set does not, reads the archive if it is on this machine, and says so.
/// Throws UsageError with the first archive that differs.
void check_archives(const std::filesystem::path& run, const DatasetInfo& set, bool hash);

}  // namespace millrace::tools
