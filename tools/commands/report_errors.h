// The most confidently wrong images of an evaluation, for a run's report.
#pragma once

#include <filesystem>

#include "study/report/report.h"

namespace millrace::tools {

/// Adds a table of the images with thumbnails, from what `millrace eval --predictions` wrote to
/// `file`. The images are those that the evaluation's chain makes of the data set; a note says if
/// they are not there. Throws DataError if `file` is damaged.
void add_wrong_images(const std::filesystem::path& run, const std::filesystem::path& file,
                      study::Report& report);

}  // namespace millrace::tools
