// Converts a figure to a script and a table of numbers for gnuplot. Writes text only and runs
// nothing.
#pragma once

#include <string>

#include "study/report/report.h"

namespace millrace::study {

struct PlotScript {
  std::string script;  ///< draws ID.svg and ID.png from ID.dat in the working directory
  std::string data;    ///< ID.dat
};

/// Returns a plot sized for a column of a paper (86 mm; the PNG at 300 dots per inch), in colours
/// that colour-blind readers can tell apart. Deterministic.
PlotScript plot_script(const Figure& figure);

}  // namespace millrace::study
