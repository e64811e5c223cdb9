// Report on a profile's directory: the baseline's time, each resource's ceiling, and the predicted
// and measured effect of changes.
#pragma once

#include <filesystem>

#include "study/report/report.h"

namespace millrace::study {

/// Returns the report on the profile at `path`, verified or not, finished or not. Throws DataError
/// if a file is damaged.
Report profile_report(const std::filesystem::path& path);

}  // namespace millrace::study
