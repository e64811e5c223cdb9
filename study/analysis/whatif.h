// What-if analysis (contract Prediction): lists changes worth trying, and compares the replay's
// predictions with measurements.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "study/analysis/replay.h"

namespace millrace::study {

/// One change to a configuration. `overrides` are arguments of `millrace train`. The other members
/// hold changes that no key can express; these are only predicted.
struct Change {
  std::vector<std::string> overrides;
  int cores = 0;                       ///< cores of the machine; 0: unchanged
  double device_speed = 1;             ///< speed-up of a real device
  bool decode_free = false;            ///< samples arrive decoded
  bool packed = false;                 ///< samples come from archives (millrace data pack)
  std::vector<std::string> assumed{};  ///< the members above as text: "cores=8"

  /// Returns text such as "loader.workers=1 loader.prefetch=2", assumptions included.
  std::string text() const;
  bool runnable() const { return assumed.empty(); }
};

/// Facts that the list of changes depends on.
struct ChangeFacts {
  int cores = 1;
  int workers = 0, prefetch = 4, io_threads = 0;
  std::int64_t batch = 64, samples = 0;
  bool simulated = false;                       ///< the device is simulated
  double update_ms = 0;                         ///< update time of a simulated device
  bool encoded = false;                         ///< samples need decoding
  bool packable = false;                        ///< `millrace data pack` takes the data set
  double bandwidth = 0, latency = 0, iops = 0;  ///< data.storage.*; 0: not emulated
  /// Overrides that remove one op each and leave a valid chain.
  std::vector<std::string> without_op;
};

/// Returns the changes that are tried by default: other workers, prefetch and I/O threads, without
/// an op, free decoding, packed data, another storage (each limit alone, and all together), another
/// device, another batch size, more cores.
std::vector<Change> list_changes(const ChangeFacts& facts);

/// A change and its results, as ratios of images/s to the baseline.
struct Outcome {
  Change change;
  double predicted = 1;
  std::optional<double> measured;

  /// Returns the prediction's error relative to the measurement.
  std::optional<double> error() const;
};

/// Accuracy of predictions (contract Prediction). Measured changes count if the predicted or the
/// measured effect is at least 20%.
struct Score {
  int counted = 0;
  double median_error = 0, worst_error = 0;  ///< relative errors over the counted changes
  /// 1 - sum of |error| / sum of |error of predicting no change|, over the counted changes.
  double skill = 0;
};
inline constexpr double kCountedEffect = 0.2;
Score score_of(std::span<const Outcome> outcomes);

/// A predicted gain that is worth advice, as a ratio.
inline constexpr double kWorthwhile = 1.05;

/// Returns the change with the largest prediction, if that is worthwhile. Considers changes that
/// leave the batches as they are and that this machine can be given: not more cores, not a faster
/// real device, not another batch size, no op less. Of changes within 1% takes the first.
const Outcome* most_helpful(std::span<const Outcome> outcomes);

/// Returns, for each limit of the storage, for loader.io_threads and for packing, the change of
/// that one alone with the largest prediction.
std::vector<const Outcome*> storage_changes(std::span<const Outcome> outcomes);

/// Returns the median; for an even number of values, the mean of the middle two. NaN for none.
double middle_of(std::vector<double> values);

/// The fewest workers, then the smallest prefetch, that reach `part` of the best rate with up to
/// `max_workers` workers.
struct Advice {
  int workers = 0;
  int prefetch = 0;
  double images_per_s = 0;       ///< with these settings
  double best_images_per_s = 0;  ///< with the best settings
};
Advice advise(const ReplayInput& input, int max_workers, double inline_sample_s,
              double part = 0.95);

}  // namespace millrace::study
