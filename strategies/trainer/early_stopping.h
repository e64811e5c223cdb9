// Early stopping: ends a run whose evaluations have stopped improving, by the rule of Keras's and
// Lightning's EarlyStopping.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/private_api.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

struct EarlyStoppingOptions {
  std::string metric = "off";  ///< off, test_loss (falls as it improves), top1 (rises)
  std::uint64_t patience = 3;  ///< evaluations in a row without improvement that end the run
  double min_delta = 0;        ///< an improvement exceeds it

  bool on() const { return metric != "off"; }
};

/// Evaluations so far, kept in checkpoints.
struct EarlyStoppingState {
  double best = std::numeric_limits<double>::quiet_NaN();  ///< NaN: no finite value so far
  std::uint32_t best_epoch = 0;                            ///< epoch of the best; 0: none
  std::uint32_t last_epoch = 0;                            ///< last evaluated epoch; 0: none
  std::uint64_t stale = 0;  ///< evaluations since the best one without improvement
};

/// Returns the state after an epoch's evaluation. A value that is not finite is no improvement. An
/// epoch that a resumed run evaluates once more leaves the state unchanged.
MILLRACE_PRIVATE_API EarlyStoppingState with_epoch(EarlyStoppingState state,
                                                   const EarlyStoppingOptions& options,
                                                   std::uint32_t epoch,
                                                   const Evaluation& evaluation);

/// Returns whether the run ends after the last evaluated epoch.
MILLRACE_PRIVATE_API bool is_exhausted(const EarlyStoppingState& state,
                                       const EarlyStoppingOptions& options);

}  // namespace millrace::train
