// Compares evaluations.
#include "strategies/trainer/early_stopping.h"

#include <cmath>

#include "strategies/trainer/trainer.h"

namespace millrace::train {

EarlyStoppingState with_epoch(EarlyStoppingState state, const EarlyStoppingOptions& options,
                              std::uint32_t epoch, const Evaluation& evaluation) {
  if (!options.on() || epoch <= state.last_epoch) return state;
  state.last_epoch = epoch;
  const bool falls = options.metric == "test_loss";
  const double value =
      falls ? evaluation.loss_sum / static_cast<double>(evaluation.images) : top1_of(evaluation);
  const double gain = falls ? state.best - value : value - state.best;
  if (std::isfinite(value) && (state.best_epoch == 0 || gain > options.min_delta)) {
    state.best = value;
    state.best_epoch = epoch;
    state.stale = 0;
  } else {
    ++state.stale;
  }
  return state;
}

bool is_exhausted(const EarlyStoppingState& state, const EarlyStoppingOptions& options) {
  return options.on() && state.stale >= options.patience;
}

}  // namespace millrace::train
