// What would change a run's speed: the changes worth trying, what the replay says of each, and how
// its word compares with what was measured afterwards.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "study/analysis/replay.h"

namespace millrace::study {

/// One change to a configuration. `overrides` is what `millrace train` takes; what no key can say
/// stands in the other members and is predicted only.
struct Change {
  std::vector<std::string> overrides;
  int cores = 0;                       ///< of the machine; 0: as it is
  double device_speed = 1;             ///< of a device that is real
  bool decode_free = false;            ///< as if samples came decoded
  std::vector<std::string> assumed{};  ///< the members above, as text: "cores=8"

  /// "loader.workers=1 loader.prefetch=2", assumptions included.
  std::string text() const;
  bool runnable() const { return assumed.empty(); }
};

/// What the list depends on.
struct ChangeFacts {
  int cores = 1;
  int workers = 0, prefetch = 4, io_threads = 0;
  std::int64_t batch = 64, samples = 0;
  bool simulated = false;                       ///< the device
  double update_ms = 0;                         ///< of a simulated device
  bool encoded = false;                         ///< there is something to decode
  double bandwidth = 0, latency = 0, iops = 0;  ///< data.storage.*; 0: not emulated
  /// Overrides that take an op out and leave a chain that works.
  std::vector<std::string> without_op;
};

/// The changes that are tried by themselves: other workers, prefetch and I/O threads, without an
/// op, decoding for nothing, another storage, another device, another batch, more cores.
std::vector<Change> list_changes(const ChangeFacts& facts);

/// A change and what came of it; ratios of images/s against the baseline.
struct Outcome {
  Change change;
  double predicted = 1;
  std::optional<double> measured;

  /// Of the prediction, relative to what was measured.
  std::optional<double> error() const;
};

/// Contract T4's rule: only changes with a measured effect of at least 20% count.
struct Score {
  int counted = 0;
  double median_error = 0, worst_error = 0;  ///< relative, over the counted
  /// 1 - sum of |error| / sum of |error of predicting no change|, over the counted.
  double skill = 0;
};
inline constexpr double kCountedEffect = 0.2;
Score score_of(std::span<const Outcome> outcomes);

/// The middle value; of an even number the mean of the middle two. NaN for none.
double middle_of(std::vector<double> values);

/// The fewest workers, then the smallest prefetch, that reach `part` of the best that any number of
/// workers up to `max_workers` would give.
struct Advice {
  int workers = 0;
  int prefetch = 0;
  double images_per_s = 0;       ///< with these
  double best_images_per_s = 0;  ///< with any
};
Advice advise(const ReplayInput& input, int max_workers, double inline_sample_s,
              double part = 0.95);

}  // namespace millrace::study
