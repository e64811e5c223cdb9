// Several runs side by side in one report.
#pragma once

#include <filesystem>
#include <vector>

#include "study/report/report.h"

namespace millrace::study {

/// Facts that differ, the keys that differ, where each run's time went, and each curve with a line
/// a run. Throws DataError where a file that is there is damaged.
Report comparison_report(const std::vector<std::filesystem::path>& runs);

}  // namespace millrace::study
