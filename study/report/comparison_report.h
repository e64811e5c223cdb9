// Report that shows several runs side by side.
#pragma once

#include <filesystem>
#include <vector>

#include "study/report/report.h"

namespace millrace::study {

/// Returns the facts and keys that differ, each run's time by parts, and each curve with one line
/// per run. Throws DataError if a file is damaged.
Report comparison_report(const std::vector<std::filesystem::path>& runs);

}  // namespace millrace::study
