// A run's directory as a report: of whatever is there, with notes of what is not.
#pragma once

#include <filesystem>

#include "study/report/report.h"

namespace millrace::study {

/// Verdict, facts, figures and tables of the run at `path`; it may still be going, or have been
/// killed. Throws DataError where a file that is there is damaged.
Report run_report(const std::filesystem::path& path);

}  // namespace millrace::study
