// Figures of a sweep's table.
#pragma once

#include <vector>

#include "study/report/report.h"
#include "study/sweep/sweep_table.h"

namespace millrace::study {

/// Returns rates, times, ratios and accuracies of the rows, with their intervals, and images/s over
/// workers if these are swept.
std::vector<Figure> sweep_figures(const SweepTable& table);

}  // namespace millrace::study
