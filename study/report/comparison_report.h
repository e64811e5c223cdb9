// Reports that show several runs side by side.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/report/report.h"

namespace millrace::study {

/// Returns the facts and keys that differ, each run's time by parts, and each curve with one line
/// per run. Throws DataError if a file is damaged.
Report comparison_report(const std::vector<std::filesystem::path>& runs);

/// Returns the report on the runs, profiles and sweeps directly below `folder`, by name: a table
/// with the keys that differ and the results, and the curves of all runs, of which the page shows
/// the chosen ones. Names damaged runs in its notes.
Report folder_report(const std::filesystem::path& folder);

/// Returns the folders directly below `folder` that hold a run, a profile or a sweep, by name.
std::vector<std::filesystem::path> runs_below(const std::filesystem::path& folder);

}  // namespace millrace::study
