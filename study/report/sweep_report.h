// A sweep's directory as a report: its table, and each column that matters as a figure.
#pragma once

#include <filesystem>

#include "study/report/report.h"

namespace millrace::study {

/// Of the sweep at `path`; of one that goes on or was killed, what has finished, without a verdict.
/// Throws DataError where a file is damaged.
Report sweep_report(const std::filesystem::path& path);

}  // namespace millrace::study
