// The course of a run: its learning rate, and when it stops early.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/private_api.h"
#include "strategies/trainer/evaluation.h"

namespace millrace::train {

/// Learning rate as a function of a run's progress, so that a resumed run needs only its position.
struct ScheduleOptions {
  std::string name = "constant";   ///< constant, step, multistep, cosine, onecycle
  double lr = 0.01;                ///< highest rate
  double warmup = 0;               ///< epochs of linear growth from warmup_start * lr to lr
  double warmup_start = 0.01;      ///< fraction of lr; positive
  double step_epochs = 30;         ///< step: epochs between reductions
  std::vector<double> milestones;  ///< multistep: epochs after which the rate is reduced, ascending
  double gamma = 0.1;              ///< step, multistep: factor of a reduction
  double min_lr = 0;               ///< cosine: final rate
};

/// torch.optim.lr_scheduler's StepLR, MultiStepLR, CosineAnnealingLR and OneCycleLR in closed form,
/// advanced after every optimizer step. StepLR and MultiStepLR change between epochs. Warm-up is
/// LinearLR before the schedule, which then covers the remaining steps. OneCycleLR has its defaults
/// (rises over the first 30% from lr/25, falls to lr/250000, both by cosines), and does not change
/// the momentum.
class MILLRACE_PRIVATE_API Schedule {
 public:
  /// `updates` are the optimizer steps of the whole run, `updates_per_epoch` those of an epoch.
  /// Throws UsageError for contradictory options.
  Schedule(ScheduleOptions options, std::uint64_t updates, std::uint64_t updates_per_epoch);

  /// Returns the rate of an optimizer step, counted from 0 over all epochs.
  double at(std::uint64_t update) const;

 private:
  double after_warmup(std::uint64_t update) const;

  ScheduleOptions options_;
  std::uint64_t updates_;
  std::uint64_t updates_per_epoch_;
  std::uint64_t warmup_;  ///< in optimizer steps
};

/// Early stopping: ends a run whose evaluations have stopped improving, by the rule of Keras's and
/// Lightning's EarlyStopping.
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
/// epoch that a resumed run evaluates again leaves the state unchanged.
MILLRACE_PRIVATE_API EarlyStoppingState with_epoch(EarlyStoppingState state,
                                                   const EarlyStoppingOptions& options,
                                                   std::uint32_t epoch,
                                                   const Evaluation& evaluation);

/// Returns whether the run ends after the last evaluated epoch.
MILLRACE_PRIVATE_API bool is_exhausted(const EarlyStoppingState& state,
                                       const EarlyStoppingOptions& options);

}  // namespace millrace::train
