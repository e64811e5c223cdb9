// The figures of a sweep's table.
#pragma once

#include <vector>

#include "study/report/report.h"
#include "study/sweep/sweep_table.h"

namespace millrace::study {

/// Rates, times, ratios and accuracies of the rows, with their intervals; images/s by workers where
/// these are swept.
std::vector<Figure> sweep_figures(const SweepTable& table);

}  // namespace millrace::study
