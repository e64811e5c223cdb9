// What-if analysis: changes worth trying, their prediction from records, and its verification.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "predict/loader_replay.h"
#include "predict/rules.h"
#include "predict/score.h"
#include "study/analysis/bound.h"
#include "study/records/summary.h"

namespace millrace::study {

// What-if analysis (contract Prediction): lists changes worth trying, and compares the replay's
// predictions with measurements.

/// One way of `millrace data pack` that converts images.
struct Packing {
  int short_side = 0;  ///< shorter side in pixels; 0: as it is
  bool raw = false;    ///< pixels instead of JPEGs
  double bytes = 1;    ///< size of the packed samples as a share of what they were

  /// Returns text such as "pack=raw,short-side=256", which parse_packing() takes.
  std::string text() const;
  /// Returns whether the images lose detail.
  bool lossy() const { return short_side > 0; }
};

/// Parses the text of a packing; nothing for other text. Throws UsageError for one that begins with
/// "pack=" and is none.
std::optional<Packing> parse_packing(std::string_view text);

/// Returns the packings worth trying for samples of the given shorter side: raw, and at a shorter
/// side with room for random crops, 8/7 of it and a multiple of 32.
std::vector<Packing> list_packings(int output_side);

/// One change to a configuration. `overrides` are arguments of `millrace train`. The other members
/// hold changes that no key can express; these are only predicted.
struct Change {
  std::vector<std::string> overrides;
  int cores = 0;                       ///< cores of the machine; 0: unchanged
  double device_speed = 1;             ///< speed-up of a real device
  bool decode_free = false;            ///< samples arrive decoded
  bool packed = false;                 ///< samples come from archives (millrace data pack)
  double first_byte = 1;               ///< time to a server's first byte, relative to now
  bool cached = false;                 ///< a remote set lies in data.remote.cache
  bool fetched = false;                ///< `cached`, and a verification fetches all of it
  std::optional<Packing> packing{};    ///< samples come from archives that hold them converted
  std::vector<std::string> assumed{};  ///< the members above as text: "cores=8"

  /// Returns text such as "loader.workers=1 loader.prefetch=2", assumptions included.
  std::string text() const;
  /// Returns whether it can be run: a packing can, once a sample of the set is packed, and a cached
  /// set, if it may be fetched.
  bool runnable() const { return assumed.empty() || packing || fetched; }
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
  bool requested = false;                       ///< DatasetInfo::requested
  /// Overrides that remove one op each and leave a valid chain.
  std::vector<std::string> without_op;
};

/// Returns the changes that are tried by default: other workers, prefetch and I/O threads, without
/// an op, free decoding, packed data, another storage (each limit alone, and all together), more
/// connections to a server, a nearer or a cached one, another device, another batch size, more
/// cores.
std::vector<Change> list_changes(const ChangeFacts& facts);

/// Returns the change to a remote set that lies in data.remote.cache. It is only predicted unless
/// it was asked for (`fetched`): a verification fetches the whole set.
Change cached_set(bool fetched = false);

/// A change and its results, as ratios of images/s to the baseline.
struct Outcome {
  Change change;
  double predicted = 1;
  std::optional<double> measured;
  /// 90% interval of `predicted`; NaN: unknown.
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
  /// Ratio over all runs, void ones included, of a change that has no measured ratio: shown, and
  /// used for nothing.
  std::optional<double> disturbed{};
  /// 90% interval of `measured`; only where disturbed runs were accepted.
  std::optional<std::pair<double, double>> measured_interval{};

  /// Returns the prediction's error relative to the measurement.
  std::optional<double> error() const;
  /// Returns whether the change was measured and has an effect of at least predict::kCountedEffect.
  bool has_effect() const;
  /// Returns what the change gives at least: what was measured or, of disturbed runs and of
  /// predictions, the interval's lower end.
  double lower() const;
};

/// Returns whether a change's rate follows from the recipe by arithmetic: settings of the simulated
/// device and, beside such a device (`simulated`), another batch size, with which its update does
/// not grow. Such a prediction says nothing about the model.
bool is_arithmetic(const Change& change, bool simulated);

/// Returns the accuracy of the outcomes that were measured (contract Prediction).
predict::Score score_of(std::span<const Outcome> outcomes, bool simulated = false);

/// Returns whether a change leaves the batches as they are and this machine can be given it: not
/// more cores, not a faster real device, not another batch size, no op less.
bool can_be_given(const Change& change);

/// Returns the change that gives most at least (Outcome::lower), if that is worthwhile. Considers
/// those that can_be_given(). Of worthwhile changes within 1% takes the first.
const Outcome* most_helpful(std::span<const Outcome> outcomes);

/// Returns, for each limit of the storage, for loader.io_threads and for packing, the change of
/// that one alone with the largest prediction.
std::vector<const Outcome*> storage_changes(std::span<const Outcome> outcomes);

/// The fewest workers, then the smallest prefetch, that reach `part` of the best rate with up to
/// `max_workers` workers.
struct Advice {
  int workers = 0;
  int prefetch = 0;
  double images_per_s = 0;       ///< with these settings
  double best_images_per_s = 0;  ///< with the best settings
};
Advice advise(const predict::ReplayInput& input, int max_workers, double inline_sample_s,
              double part = predict::kEnough);

// Predicts other numbers of workers from the records of one run.

inline constexpr std::int64_t kMaxReplayed = 4096;          ///< cores, threads, or batches ahead
inline constexpr std::int64_t kMaxReplayedBatch = 1 << 20;  ///< samples per batch

/// Returns the replay's input for the run of `summary`: CPU time per sample from loader_cpu_s, the
/// update and the trainer's own time per step. Returns nothing where the records do not suffice:
/// several ranks, workers that changed within the run, an emulated storage, whose reads' sizes no
/// record holds, or figures that are missing. Nothing either for more than kMaxReplayed cores,
/// threads or batches ahead, or kMaxReplayedBatch samples per batch: a record may claim any number,
/// and a replay takes memory and time for each.
std::optional<predict::ReplayInput> recorded_input(const Summary& summary, bool storage);

}  // namespace millrace::study
