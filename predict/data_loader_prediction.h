// Predicts a recorded loop's images/s behind a changed DataLoader, with 90% intervals.
#pragma once

#include <vector>

#include "predict/data_loader_changes.h"
#include "predict/data_loader_replay.h"
#include "predict/ratio_interval.h"

namespace millrace::predict {

/// Relative half width of a ratio's interval if demands are known and the replay of the run is
/// right. With it, intervals held 130 of 138 measured ratios (docs/results/2026-11-29-campaign.md).
inline constexpr double kDataLoaderModelError = 0.035;
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

/// Ratios to one run. A record cannot tell how much slower code gets while more cores are busy, and
/// how much faster on a core that is no longer idle for most of the time. A ratio assumes the
/// geometric mean of nothing and the most that was measured. Its interval holds the ratios with
/// either, with the demands of loading and of the update at the ends of their own intervals, and
/// with an update in several threads that do not wait for each other. Where a thread takes batches
/// ahead, and makes them itself before or after the change, it and the loop may wait for each
/// other's interpreter's lock: the ratio assumes the geometric mean of the longest such waits and
/// of none, and its interval holds both. Where a change lets next() wait longer for tensors than in
/// the run (tensor_wait), its interval holds the ratio without that.
class DataLoaderRatios {
 public:
  /// `input`: of the run. `measured`: its images/s; 0: unknown. Throws std::invalid_argument as
  /// replay() does.
  DataLoaderRatios(const DataLoaderInput& input, double measured, const Doubts& doubts);

  double images_per_s() const { return base_.images_per_s; }  ///< of the replayed run
  /// Returns the ratio of a changed input.
  double of(const DataLoaderInput& changed) const;
  RatioInterval with_interval(const DataLoaderInput& changed) const;

 private:
  /// Factors of CPU times, at most, and the one that the ratio assumes.
  struct Slowdown {
    double crowding, cooling, usual;
    double images_per_s;  ///< of the changed input without any
  };
  struct End {
    double fetch, update;  ///< factors of the demands
    double images_per_s;   ///< of the run with them
  };

  Slowdown slowdown(const DataLoaderInput& changed) const;

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
  int shards = 0;  ///< of the data set, of which a worker needs one or more; 0: unknown
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
  double images_per_s() const { return loop_.images_per_s(); }            ///< of the replayed run
  double loader_images_per_s() const { return loading_.images_per_s(); }  ///< of its loader alone

  std::vector<DataLoaderChange> changes(const Paging& paging) const;
  PredictedRatio predict(const DataLoaderChange& change) const;

 private:
  DataLoaderInput input_;
  RecordedRun run_;
  Doubts doubts_;
  DataLoaderRatios loop_;
  DataLoaderRatios loading_;
};

}  // namespace millrace::predict
