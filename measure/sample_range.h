// Size of a sample range, the work unit of a loader's worker.
#pragma once

#include <algorithm>
#include <cstdint>

namespace millrace::measure {

/// Duration that the loader aims at for a sample range: long against the flow graph's overhead of
/// some µs per range, and short enough that a batch spreads over the workers.
inline constexpr double kRangeNs = 200'000;

/// Returns the number of samples per range of a batch of `count` samples, of which one takes
/// `cost_ns`; 0: not measured yet.
inline std::int64_t samples_per_range(std::int64_t count, int workers, int prefetch,
                                      double cost_ns) {
  if (cost_ns <= 0) return std::max<std::int64_t>(1, (count + workers - 1) / workers);
  // Too few batches are open to keep every worker busy with a whole one.
  const std::int64_t ranges = (workers + prefetch - 1) / prefetch;
  const auto most = static_cast<double>((count + ranges - 1) / ranges);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(most, kRangeNs / cost_ns)));
}

}  // namespace millrace::measure
