// A figure as a script and a table of numbers for the program gnuplot: text only, nothing is run.
#pragma once

#include <string>

#include "study/report/report.h"

namespace millrace::study {

struct PlotScript {
  std::string script;  ///< draws ID.svg and ID.png from ID.dat in the working directory
  std::string data;    ///< ID.dat
};

/// Sized for a column of a paper (86 mm; the PNG at 300 dots an inch), with colours that
/// colour-blind readers can tell apart. The same text for the same figure.
PlotScript plot_script(const Figure& figure);

}  // namespace millrace::study
