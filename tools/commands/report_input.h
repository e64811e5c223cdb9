// Input of millrace report: recognises the kind of directory, and adds what only the program can:
// comparisons with shipped recipes, and pictures.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/report/report.h"

namespace millrace::tools {

/// Returns the report on one run, profile or sweep, on a folder of them, or on several runs side by
/// side. `predictions`: what `millrace eval --predictions` wrote about the run; empty: the run's
/// predictions.csv, if there is one. Throws UsageError for any other path, DataError if a file is
/// damaged.
study::Report make_report(const std::vector<std::string>& paths,
                          const std::filesystem::path& predictions);

/// Returns the directory of the one run in `paths`. Throws UsageError for anything else.
std::filesystem::path the_run_in(const std::vector<std::string>& paths);

/// Adds the parts that do not change while a run goes on: its configuration, the most confidently
/// wrong images of `predictions` (as for make_report()), and pictures of its first samples.
void add_fixed_parts(const std::filesystem::path& run, const std::filesystem::path& predictions,
                     study::Report& report);

}  // namespace millrace::tools
