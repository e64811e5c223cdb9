// Words of a profile's table and advice. Both take their figures from the same outcomes.
#pragma once

#include <string>
#include <vector>

#include "study/analysis/conclusion.h"

namespace millrace::study {

/// Returns the header and one row per change, the largest prediction first. Rates are in images/s;
/// `baseline` turns ratios into them. `verified`: changes that were run and have no ratio are void.
std::vector<std::vector<std::string>> change_rows(const std::vector<Outcome>& outcomes,
                                                  double baseline, bool verified);

/// Returns "advice: loader.workers=2 gives 1,383 images/s, 1.31 times the baseline (1.25 to 1.37)"
/// with the figures of the change's row, or why there is no advice.
std::string advice_text(const Conclusion& conclusion, double baseline);

/// Returns "enough workers: loader.workers=1 gives 1,081 of at most 1,081 images/s". `configured`
/// is the number of workers as it is.
std::string workers_text(const Conclusion& conclusion, int configured, double baseline);

}  // namespace millrace::study
