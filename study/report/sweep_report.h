// Report on a sweep's directory: its table, and each important column as a figure.
#pragma once

#include <filesystem>

#include "study/report/report.h"

namespace millrace::study {

/// Returns the report on the sweep at `path`. An unfinished sweep shows its finished runs without
/// verdicts. Throws DataError if a file is damaged.
Report sweep_report(const std::filesystem::path& path);

}  // namespace millrace::study
