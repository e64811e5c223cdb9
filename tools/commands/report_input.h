// Parts of millrace report: its input, pictures of errors, and --live.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/report/report.h"

namespace millrace::tools {

// The most confidently wrong images of an evaluation, for a run's report.

/// Adds a table of the images with thumbnails, from what `millrace eval --predictions` wrote to
/// `file`. The images are those that the evaluation's chain makes of the data set; a note says if
/// they are not there. Throws DataError if `file` is damaged.
void add_wrong_images(const std::filesystem::path& run, const std::filesystem::path& file,
                      study::Report& report);

// Input of millrace report: recognises the kind of directory, and adds what only the program can:
// comparisons with shipped recipes, and pictures.

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

// millrace report --live: rewrites the page of a run while the run goes on.

/// Writes the page to `file`, again every `interval_s` seconds, until the run has ended. Each file
/// is complete when it appears, and the last one does not load itself again. `predictions`: as for
/// make_report(). Throws Error if it is
/// interrupted, DataError if a record is damaged, RunError if the page cannot be written.
void follow_run(const std::filesystem::path& run, const std::filesystem::path& predictions,
                const std::filesystem::path& file, double interval_s);

}  // namespace millrace::tools
