// A report's figures as files for papers, drawn by the program gnuplot.
#pragma once

#include <filesystem>
#include <span>

#include "study/report/report.h"

namespace millrace::study {

/// Writes ID.svg and ID.png of each figure into `folder`, which is made where it is missing, and
/// beside them ID.gp and ID.dat, from which an author can draw them again. Same figures, same bytes
/// (of one version of gnuplot). Throws DeviceError where there is no gnuplot, before anything is
/// written, and RunError where it fails or the folder cannot be written.
void write_plots(std::span<const Figure> figures, const std::filesystem::path& folder);

}  // namespace millrace::study
