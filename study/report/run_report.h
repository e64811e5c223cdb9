// Report on a run directory: shows what is there, and notes what is missing.
#pragma once

#include <filesystem>

#include "study/report/report.h"

namespace millrace::study {

/// Returns the verdict, facts, figures and tables of the run at `path`, which may still be going or
/// have been killed. Throws DataError if a file is damaged.
Report run_report(const std::filesystem::path& path);

}  // namespace millrace::study
