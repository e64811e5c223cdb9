// Computes learning rates, and compares evaluations.

#include "strategies/trainer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "millrace/error.h"
#include "strategies/trainer/trainer.h"

namespace millrace::train {
namespace {

/// Defaults of OneCycleLR.
constexpr double kRise = 0.3;
constexpr double kFirst = 1.0 / 25;
constexpr double kFinalRate = kFirst / 1e4;

/// Interpolates from `begin` to `end` along half a cosine; `part` lies in 0..1.
double along_cosine(double begin, double end, double part) {
  return end + (begin - end) / 2 * (1 + std::cos(std::numbers::pi * part));
}

}  // namespace

Schedule::Schedule(ScheduleOptions options, std::uint64_t updates, std::uint64_t updates_per_epoch)
    : options_(std::move(options)),
      updates_(updates),
      updates_per_epoch_(std::max<std::uint64_t>(1, updates_per_epoch)),
      warmup_(static_cast<std::uint64_t>(
          std::llround(options_.warmup * static_cast<double>(updates_per_epoch_)))) {
  if (options_.name == "onecycle" && warmup_ > 0)
    throw UsageError("train.schedule=onecycle has a warm-up of its own",
                     "set train.warmup=0 or choose another schedule");
  if (options_.name == "multistep" && options_.milestones.empty())
    throw UsageError("train.schedule=multistep needs the epochs at which it steps",
                     "set train.milestones, to [30,60,80] for example");
  if (!std::is_sorted(options_.milestones.begin(), options_.milestones.end()))
    throw UsageError("train.milestones must increase");
  if (warmup_ > 0 && warmup_ >= updates_)
    throw UsageError("train.warmup takes " + std::to_string(warmup_) +
                         " optimizer steps, the run has " + std::to_string(updates_),
                     "warm up for fewer epochs, or train for more");
  if (options_.min_lr > options_.lr)
    throw UsageError("train.min_lr is above train.lr", "the schedule ends at train.min_lr");
}

double Schedule::at(std::uint64_t update) const {
  if (update >= warmup_) return after_warmup(update);
  const double part = static_cast<double>(update) / static_cast<double>(warmup_);
  return options_.lr * (options_.warmup_start + (1 - options_.warmup_start) * part);
}

double Schedule::after_warmup(std::uint64_t update) const {
  const double lr = options_.lr;
  const std::uint64_t epoch = update / updates_per_epoch_;
  if (options_.name == "step")
    return lr *
           std::pow(options_.gamma, std::floor(static_cast<double>(epoch) / options_.step_epochs));
  if (options_.name == "multistep") {
    const auto passed = std::upper_bound(options_.milestones.begin(), options_.milestones.end(),
                                         static_cast<double>(epoch)) -
                        options_.milestones.begin();
    return lr * std::pow(options_.gamma, static_cast<double>(passed));
  }
  if (options_.name == "cosine") {
    const double length = static_cast<double>(updates_ - warmup_);
    return along_cosine(lr, options_.min_lr,
                        std::min(1.0, static_cast<double>(update - warmup_) / length));
  }
  if (options_.name == "onecycle") {
    // The peak lies on a step, and the last step has the final rate.
    const double last = static_cast<double>(updates_) - 1;
    const double peak = kRise * static_cast<double>(updates_) - 1;
    const double now = std::min(static_cast<double>(update), last);
    if (now <= peak) return along_cosine(lr * kFirst, lr, now / peak);
    return along_cosine(lr, lr * kFinalRate, (now - peak) / (last - peak));
  }
  return lr;
}

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
