// millrace report --live: rewrites the page of a run while the run goes on.
#pragma once

#include <filesystem>

namespace millrace::tools {

/// Writes the page to `file`, again every `interval_s` seconds, until the run has ended. Each file
/// is complete when it appears, and the last one does not load itself again. `predictions`: as for
/// make_report(). Throws Error if it is
/// interrupted, DataError if a record is damaged, RunError if the page cannot be written.
void follow_run(const std::filesystem::path& run, const std::filesystem::path& predictions,
                const std::filesystem::path& file, double interval_s);

}  // namespace millrace::tools
