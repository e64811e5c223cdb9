// The wait breakdown, as summary.json holds it.
#pragma once

#include "measure/wait_breakdown.h"
#include "study/records/summary.h"

namespace millrace::study {

/// Returns the seconds of each part.
Named<double> by_part(const measure::PartSeconds& seconds);
/// Returns the quantiles of load and of each part, in seconds per step.
Named<QuantilesRecord> step_quantiles(const measure::WaitBreakdown& waits);

}  // namespace millrace::study
