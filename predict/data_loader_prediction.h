// Predicts a recorded loop's images/s behind a changed DataLoader, with 90% intervals.
#pragma once

#include <vector>

#include "predict/data_loader_changes.h"
#include "predict/data_loader_replay.h"
#include "predict/ratio_interval.h"

namespace millrace::predict {

/// Relative half width of a ratio's interval if demands are known and the replay of the run is
/// right: nine tenths of the errors in docs/results/2026-11-23-what-if-loops.md are smaller.
inline constexpr double kDataLoaderModelError = 0.055;
/// CPU time on busy cores over that on one busy core, at most
/// (docs/results/2026-11-27-without-workers.md).
inline constexpr double kMaxCrowding = 1.3;
/// CPU time on a core that mostly waits over that on a busy one, at most
/// (docs/results/2026-11-28-waiting-loops.md).
inline constexpr double kMaxCooling = 1.4;

/// Uncertainty of a run's demands.
struct Doubts {
  double fetch = 0;  ///< relative half width of the 90% interval of a batch's fetch
  double update = 0;
  /// CPU time that was measured for an update in several threads, over that which the replay takes
  /// for work.
  double spinning = 1;
};

/// Intervals of ratios to one run. An interval holds the ratios of replays with the demands of
/// loading and of the update at either end of their own intervals. More replays stand for what a
/// record cannot tell: how much slower code gets while more cores are busy or may be, how much
/// faster on a core that is no longer idle for most of the time, and how much of an update in
/// several threads was waiting for each other.
class DataLoaderIntervals {
 public:
  /// `input`: of the run. `measured`: its images/s; 0: unknown. Throws std::invalid_argument as
  /// replay() does.
  DataLoaderIntervals(const DataLoaderInput& input, double measured, const Doubts& doubts);

  /// Returns the interval of the `ratio` of a changed input.
  RatioInterval around(double ratio, const DataLoaderInput& changed) const;

 private:
  struct End {
    double fetch, update;  ///< factors of the demands
    double images_per_s;   ///< of the run with them
  };

  DataLoaderInput input_;
  Doubts doubts_;
  DataLoaderOutput base_;
  std::vector<End> ends_;
  double unexplained_;
};

/// Facts of a recorded run beside its demands.
struct RecordedRun {
  double images_per_s = 0;        ///< of load + update
  double blocked_in_dataset = 0;  ///< the data set's share of the time that fetching is blocked
  double update_s = 0;            ///< length of an update; 0: not measured with its CPU time
  double fetch_error = 0;         ///< Doubts::fetch
  double update_error = 0;        ///< Doubts::update
};

/// A change's images/s over the run's; of a change in loading alone, the loader's over its own.
struct PredictedRatio {
  double ratio = 1;
  double low = 1, high = 1;
  double loader_images_per_s = 0;  ///< of the loader alone
};

/// Predicts changes to one recorded loop, by the ratios of replays. Throws std::invalid_argument
/// where a replay has no work that takes time.
class DataLoaderPredictor {
 public:
  DataLoaderPredictor(const DataLoaderInput& measured, const RecordedRun& run);

  /// Returns the loop, with as much CPU time per update as makes the replay's update take what was
  /// measured (without_spinning).
  const DataLoaderInput& input() const { return input_; }
  const Doubts& doubts() const { return doubts_; }
  double images_per_s() const { return images_per_s_; }                ///< of the replayed run
  double loader_images_per_s() const { return loader_images_per_s_; }  ///< of its loader alone

  std::vector<DataLoaderChange> changes(const Paging& paging) const;
  PredictedRatio predict(const DataLoaderChange& change) const;

 private:
  DataLoaderInput input_;
  RecordedRun run_;
  Doubts doubts_;
  double images_per_s_;
  double loader_images_per_s_;
  DataLoaderIntervals loop_;
  DataLoaderIntervals loading_;
};

}  // namespace millrace::predict
