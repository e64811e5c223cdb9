// Verification of predictions: runs the baseline before and after every change, and sets aside what
// other programs disturbed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace millrace::study {

/// Largest share of the machine's CPU time, 0..1, that other programs and the hypervisor may take
/// during a run. A run above it is void: no ratio uses it. Fixed, so that no result can move it.
inline constexpr double kMostOthers = 0.1;
/// Times that a void run is tried in all, while repeats are left.
inline constexpr int kTries = 3;

/// One timed run of the baseline or of a change.
struct TimedRun {
  std::optional<std::size_t> change;  ///< index of the change; nothing: the baseline
  double images_per_s = 0;
  double others = 0;  ///< share of the machine's CPU time that others took; NaN: unknown

  /// An unknown share does not make a run void.
  bool is_void() const { return others > kMostOthers; }
};

/// Changes in the order in which each block runs them.
using VerificationOrder = std::vector<std::vector<std::size_t>>;

/// Returns `blocks` random orders of `changes`, which depend on `seed` only.
VerificationOrder verification_order(std::span<const std::size_t> changes, int blocks,
                                     std::uint64_t seed);

/// Returns the number of runs without repeats: per block, each change and a baseline around each.
std::size_t planned_runs(const VerificationOrder& order);

/// Runs, in order, and the ratios that the valid ones give.
class Verification {
 public:
  /// Runs each block: baseline, change, baseline, change, ..., baseline. Repeats a void run at
  /// once, up to kTries times; in all, half as many repeats as planned runs. `run` runs a change or
  /// the baseline and returns what it measured.
  Verification(const VerificationOrder& order,
               const std::function<TimedRun(std::optional<std::size_t>)>& run);

  const std::vector<TimedRun>& runs() const { return runs_; }
  int void_runs() const;

  /// Returns the median over the blocks of a change's images/s over the mean of the baselines
  /// before and after it. Nothing if all three runs were valid in no more than half of the blocks.
  std::optional<double> ratio(std::size_t change) const;
  /// Returns the number of blocks whose three runs were valid.
  std::size_t valid_blocks(std::size_t change) const { return ratios_.at(change).size(); }
  /// Returns the median of the valid baselines' images/s, if there are any.
  std::optional<double> baseline() const;

  /// Returns whether a change has no ratio. Such a verification has no score: the changes that are
  /// left would be a selection.
  bool is_void() const;

 private:
  using Run = std::function<TimedRun(std::optional<std::size_t>)>;
  TimedRun run_valid(std::optional<std::size_t> change, const Run& run);

  std::size_t blocks_;
  std::size_t repeats_left_;
  std::vector<TimedRun> runs_;
  std::vector<std::size_t> changes_;
  std::vector<std::vector<double>> ratios_;  ///< by change
};

}  // namespace millrace::study
