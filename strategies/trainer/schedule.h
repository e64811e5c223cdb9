// The learning rate over a run: a function of how far it has come, so that a resumed run needs
// nothing but its position. Free of LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::train {

struct ScheduleOptions {
  std::string name = "constant";   ///< constant, step, multistep, cosine, onecycle
  double lr = 0.01;                ///< the highest
  double warmup = 0;               ///< epochs of linear growth from warmup_start * lr to lr
  double warmup_start = 0.01;      ///< part of lr; positive
  double step_epochs = 30;         ///< step: epochs between two reductions
  std::vector<double> milestones;  ///< multistep: epochs after which it is reduced, growing
  double gamma = 0.1;              ///< step, multistep: what a reduction multiplies by
  double min_lr = 0;               ///< cosine: the last
};

/// torch.optim.lr_scheduler's StepLR, MultiStepLR, CosineAnnealingLR and OneCycleLR in their closed
/// forms, advanced after every optimiser step; StepLR and MultiStepLR change between two epochs.
/// Warm-up is LinearLR before the schedule, which then spans what is left. OneCycleLR has its
/// defaults (a rise over the first 30% from lr/25, a fall to lr/250000, both cosines) and leaves
/// the momentum alone.
class Schedule {
 public:
  /// `updates`: optimiser steps of the whole run and of an epoch. Throws UsageError for options
  /// that contradict each other.
  Schedule(ScheduleOptions options, std::uint64_t updates, std::uint64_t updates_per_epoch);

  /// The rate of an optimiser step, counted from 0 over all epochs.
  double at(std::uint64_t update) const;

 private:
  double after_warmup(std::uint64_t update) const;

  ScheduleOptions options_;
  std::uint64_t updates_;
  std::uint64_t updates_per_epoch_;
  std::uint64_t warmup_;  ///< optimiser steps
};

}  // namespace millrace::train
