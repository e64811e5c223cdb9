// Parts of millrace report: its input, pictures of errors, and --live.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/report/report.h"

namespace millrace::tools {

// The most confidently wrong images of an evaluation, for a run's report.

/// Adds a table of the images with thumbnails, from what `millrace eval --predictions` wrote to
/// `file`. The pictures are those that the evaluation kept in the run, or else those that its chain
/// makes of the data set, if a report may open it; a note says if there are none. Throws DataError
/// if `file` is damaged.
void add_wrong_images(const std::filesystem::path& run, const std::filesystem::path& file,
                      const std::vector<std::string>& words, study::Report& report);

// Input of millrace report: recognises the kind of directory, and adds what only the program can:
// comparisons with shipped recipes, and pictures.

/// Returns the report on one run, profile or sweep, on a folder of them, or on several runs side by
/// side. `predictions`: what `millrace eval --predictions` wrote about the run; empty: the run's
/// predictions.csv, if there is one. `words`: data.path=... of this command line, which opens the
/// data set of a run that may be a stranger's. Throws UsageError for any other path, DataError if a
/// file is damaged.
study::Report make_report(const std::vector<std::string>& paths,
                          const std::filesystem::path& predictions,
                          const std::vector<std::string>& words);

/// Returns the directory of the one run in `paths`. Throws UsageError for anything else.
std::filesystem::path the_run_in(const std::vector<std::string>& paths);

/// Adds the parts that do not change while a run goes on: its configuration, the most confidently
/// wrong images of `predictions`, and pictures of its first samples. Arguments as for
/// make_report().
void add_fixed_parts(const std::filesystem::path& run, const std::filesystem::path& predictions,
                     const std::vector<std::string>& words, study::Report& report);

// millrace report --live: rewrites the page of a run while the run goes on.

/// Writes the page to `file`, again every `interval_s` seconds, until the run has ended. Each file
/// is complete when it appears, and the last one does not load itself again. `predictions`,
/// `words`: as for make_report(). Throws Error if it is interrupted, DataError if a record is
/// damaged, RunError if the page cannot be written.
void follow_run(const std::filesystem::path& run, const std::filesystem::path& predictions,
                const std::vector<std::string>& words, const std::filesystem::path& file,
                double interval_s);

}  // namespace millrace::tools
