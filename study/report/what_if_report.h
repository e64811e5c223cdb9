// A profile's directory as a report: the baseline's time, what each resource would allow, what
// changes were predicted to give and what they gave.
#pragma once

#include <filesystem>

#include "study/report/report.h"

namespace millrace::study {

/// Of the profile at `path`, verified or not, finished or not. Throws DataError where a file that
/// is there is damaged.
Report profile_report(const std::filesystem::path& path);

}  // namespace millrace::study
