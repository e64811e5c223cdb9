// What millrace report is given: which kind of directory it is, the report on it, and what only the
// program can add to that: shipped recipes to compare with, and pictures.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/report/report.h"

namespace millrace::tools {

/// A report on one run, profile or sweep; on several runs, side by side. Throws UsageError where
/// one is none of these, DataError where a file is damaged.
study::Report make_report(const std::vector<std::string>& paths);

}  // namespace millrace::tools
