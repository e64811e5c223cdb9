// Input of millrace report: recognises the kind of directory, and adds what only the program can:
// comparisons with shipped recipes, and pictures.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/report/report.h"

namespace millrace::tools {

/// Returns the report on one run, profile or sweep, or on several runs side by side. Throws
/// UsageError for any other path, DataError if a file is damaged.
study::Report make_report(const std::vector<std::string>& paths);

}  // namespace millrace::tools
