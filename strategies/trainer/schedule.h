// Learning rate as a function of a run's progress, so that a resumed run needs only its position.
// Independent of LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/private_api.h"

namespace millrace::train {

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
/// advanced after every optimiser step. StepLR and MultiStepLR change between epochs. Warm-up is
/// LinearLR before the schedule, which then covers the remaining steps. OneCycleLR has its defaults
/// (rises over the first 30% from lr/25, falls to lr/250000, both by cosines), and does not change
/// the momentum.
class MILLRACE_PRIVATE_API Schedule {
 public:
  /// `updates` are the optimiser steps of the whole run, `updates_per_epoch` those of an epoch.
  /// Throws UsageError for contradictory options.
  Schedule(ScheduleOptions options, std::uint64_t updates, std::uint64_t updates_per_epoch);

  /// Returns the rate of an optimiser step, counted from 0 over all epochs.
  double at(std::uint64_t update) const;

 private:
  double after_warmup(std::uint64_t update) const;

  ScheduleOptions options_;
  std::uint64_t updates_;
  std::uint64_t updates_per_epoch_;
  std::uint64_t warmup_;  ///< in optimiser steps
};

}  // namespace millrace::train
