// Verification of predictions: runs the baseline before and after every change, and sets aside what
// other programs disturbed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "predict/rules.h"

namespace millrace::predict {

/// A change needs no further block once its valid ratios have a 90% interval whose ends differ by
/// at most this factor: by their own scatter or, if they differ by no more themselves, by the
/// scatter that is usual among the changes.
inline constexpr double kSettled = 1.02;

/// One timed run of the baseline or of a change.
struct TimedRun {
  std::optional<std::size_t> change;  ///< index of the change; nothing: the baseline
  double images_per_s = 0;
  double others = 0;    ///< share of the cores' CPU time that others took; NaN: unknown
  bool failed = false;  ///< it ended without a rate

  /// An unknown share does not make a run void.
  bool is_void() const { return !failed && others > kMaxOthers; }
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
  /// Runs each block: baseline, change, baseline, change, ..., baseline. Leaves out changes that
  /// are settled (kSettled), and those in `once` that have a valid ratio. Repeats a void run at
  /// once, up to kTries times, once a run has been valid; in all, half as many repeats as
  /// planned runs. Ends after the first block if all of its runs are void, and with a baseline that
  /// failed. A change that failed is not run again. `run` runs a change or the baseline and returns
  /// what it measured; what it throws passes through. With `accept_noise`, void runs count as any
  /// other: nothing is repeated, and nothing ends early.
  Verification(const VerificationOrder& order,
               const std::function<TimedRun(std::optional<std::size_t>)>& run,
               bool accept_noise = false, std::set<std::size_t> once = {});

  const std::vector<TimedRun>& runs() const { return runs_; }
  int void_runs() const;

  /// Returns the median over the blocks of a change's images/s over the mean of the baselines
  /// before and after it. Nothing if all three runs were valid in no more than half of the blocks
  /// that had it; of a change in `once`, in none.
  std::optional<double> ratio(std::size_t change) const;
  /// Returns the same median over all blocks that were run, void runs included; nothing if there is
  /// none.
  std::optional<double> disturbed_ratio(std::size_t change) const;
  /// Returns the 90% interval of a change's ratio by Student's t on the logarithms of the blocks'
  /// ratios; nothing for fewer than two blocks.
  std::optional<std::pair<double, double>> interval(std::size_t change) const;
  /// Returns whether it ended early.
  bool stopped() const { return stopped_; }
  bool has_failed(std::size_t change) const { return failed_.contains(change); }
  bool accepts_noise() const { return accept_noise_; }
  /// Returns the number of blocks whose three runs were valid.
  std::size_t valid_blocks(std::size_t change) const { return ratios_.at(change).size(); }
  /// Returns the median of the valid baselines' images/s, if there are any.
  std::optional<double> baseline() const;
  /// Returns the relative standard deviation of the valid baselines' images/s; 0 for fewer than
  /// two.
  double baseline_scatter() const;

  /// Returns whether a change that did not fail has no ratio, or all have failed. Such a
  /// verification has no score: the changes that are left would be a selection.
  bool is_void() const;

 private:
  using Run = std::function<TimedRun(std::optional<std::size_t>)>;
  TimedRun run_valid(std::optional<std::size_t> change, const Run& run);
  /// Returns a block without the changes that have failed or need no further one (kSettled).
  std::vector<std::size_t> unsettled(std::vector<std::size_t> block) const;
  std::vector<double> baselines() const;
  bool is_valid(const TimedRun& run) const {
    return !run.failed && (accept_noise_ || !run.is_void());
  }

  bool accept_noise_;
  std::set<std::size_t> once_;
  bool stopped_ = false;
  bool any_valid_ = false;  ///< before, nothing is repeated: the machine may be busy all the time
  std::size_t repeats_left_;
  std::vector<TimedRun> runs_;
  std::vector<std::size_t> changes_;
  std::set<std::size_t> failed_;
  // By change.
  std::vector<std::vector<double>> ratios_;  ///< of valid blocks
  std::vector<std::vector<double>> all_;     ///< of all blocks
  std::vector<std::size_t> planned_;         ///< blocks that had it
};

}  // namespace millrace::predict
