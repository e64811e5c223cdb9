// Writes a report's figures as files for papers, drawn by gnuplot.
#pragma once

#include <filesystem>
#include <span>

#include "study/report/report.h"

namespace millrace::study {

/// Writes ID.svg and ID.png of each figure into `folder`, which it creates if necessary, and beside
/// them ID.gp and ID.dat for redrawing. Equal figures give equal bytes with one version of gnuplot.
/// Throws DeviceError before writing anything if gnuplot is missing, and RunError if it fails or
/// the folder cannot be written.
void write_plots(std::span<const Figure> figures, const std::filesystem::path& folder);

}  // namespace millrace::study
