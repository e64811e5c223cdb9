// Rules by which predictions and measurements count, for the program and for pymillrace.
#pragma once

#include <cstdint>

namespace millrace::predict {

/// Fewest steps for a verdict or advice. A run of fewer is mostly start-up.
inline constexpr std::uint64_t kStepsForVerdict = 20;

/// Load as a share of load + update from which it binds.
inline constexpr double kLoadThatBinds = 0.1;
/// Share from which it binds where load and update take turns: no workers make batches meanwhile.
inline constexpr double kLoadThatBindsInline = 0.5;
constexpr double load_that_binds(bool overlaps) {
  return overlaps ? kLoadThatBinds : kLoadThatBindsInline;
}

/// Largest share of the cores' CPU time, 0..1, that other programs and the hypervisor may take
/// during a run. Above it they may be its bound, and a run of a verification is void: no ratio uses
/// it. Fixed, so that no result can move it.
inline constexpr double kMaxOthers = 0.1;
/// Times that a void run is tried in all, while repeats are left.
inline constexpr int kTries = 3;

/// Least effect of a change, predicted or measured, with which it counts.
inline constexpr double kCountedEffect = 0.2;
/// A gain that is worth advice, as a ratio.
inline constexpr double kWorthwhile = 1.05;
/// Share of the best rate that is as good with fewer workers.
inline constexpr double kEnough = 0.95;

/// Probability with which an interval of a prediction or of a measured ratio holds the true ratio.
inline constexpr double kIntervalLevel = 0.9;

}  // namespace millrace::predict
