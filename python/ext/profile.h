// Cost of each step of a plan, measured on single samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "augment/plan/plan.h"
#include "millrace/reader.h"

namespace millrace::python {

/// One step of a plan: a traversal of the pixels, or an op that has one of its own.
struct StepCost {
  std::string what;              ///< "fetch", "decode", "source" (no decoding), "pass", an op
  std::vector<std::string> ops;  ///< ops that the step carries out together
  double s_per_sample = 0;       ///< mean wall time, in seconds
};

/// Runs up to `samples` samples, spread over the data set, through the plan on this thread. Returns
/// the steps in the order in which they first ran; a step that only some samples have is averaged
/// over all. Reading, but for what Python fetches, and ops on batches are left out. Throws Error
/// for a sample that fails.
std::vector<StepCost> profile(const Reader& reader, const augment::Plan& plan,
                              std::uint64_t max_pixels, std::uint64_t seed, std::uint64_t samples);

}  // namespace millrace::python
