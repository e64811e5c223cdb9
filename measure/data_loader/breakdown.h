// Wait breakdown: splits each wait for a batch along that batch's own history, by place and by
// kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "measure/data_loader/clock.h"
#include "measure/data_loader/record_ring.h"

namespace millrace::measure {

enum Place { kDataset, kTransform, kCollate, kTransfer, kStartup, kHandover, kNowhere, kPlaces };
inline constexpr std::array<const char*, kPlaces> kPlaceNames{
    "dataset", "transform", "collate", "transfer", "startup", "handover", "unknown"};

/// One call of next() that returned a batch. Times are ns of CLOCK_MONOTONIC.
struct BatchWait {
  std::int64_t generation = 0;
  std::int64_t batch = kUnknown;  ///< kUnknown: the iterator does not tell
  std::int64_t asked = 0;
  /// The batch's bytes were read from the pipe. 0: in an earlier call, or without a pipe; kUnknown:
  /// by the thread that pins memory.
  std::int64_t received = 0;
  std::int64_t rebuilt = 0;  ///< its tensors were rebuilt from them
  std::int64_t rebuild_cpu = 0;
  std::int64_t rebuild_delay = kUnknown;
  std::int64_t got = 0;
  std::int64_t read_cpu = 0;  ///< CPU time of reading its bytes, before `received`
};

/// Time per place and kind, in ns.
using PlaceTable = std::array<Kinds, kPlaces>;

/// Time that a worker's thread spent in a place, by kind.
struct Share {
  Place place = kNowhere;
  Kinds ns{};
};

/// The shares of one batch, or of one stretch of it.
struct Shares {
  std::array<Share, 4> all;
  std::size_t count = 0;

  void add(Place place, const Kinds& ns) { all[count++] = {place, ns}; }
  const Share* begin() const { return all.data(); }
  const Share* end() const { return all.data() + count; }
};

/// Sums of one loader. The parts of a wait are stretches between measured times, so they add up to
/// the wait to the nanosecond. What one worker did before it began the awaited batch counts for its
/// place too: the wait was for that work.
class DataLoaderBreakdown {
 public:
  /// Wall and CPU time of a transform over the sampled batches, in ns.
  using TransformRow = std::pair<std::int64_t, std::int64_t>;
  /// CPU and blocked time of making a batch, in ns.
  using Demand = std::pair<double, double>;

  explicit DataLoaderBreakdown(std::size_t transforms) : rows(transforms) {}

  /// Splits a wait. `record` is null if there is none. `started`: when the workers' processes were
  /// started; 0 without workers. `next`: the batch that the same worker made next, if it is known.
  void add(const BatchWait& wait, const WorkerRecord* record, const Parts& parts,
           std::int64_t started, bool in_order, const WorkerRecord* next = nullptr);
  /// Adds waiting time of one place whose kind is unknown.
  void add_wait(Place place, double ns);
  /// Adds waiting time of one place, with the proportions of `of`.
  void add_wait(Place place, double ns, const Kinds& of);
  /// Begins the steady state, from which the verdict is made.
  void end_first_wait() { steady = {}; }
  /// Begins rows of other transforms.
  void set_transforms(std::size_t count);

  PlaceTable waits{};                    ///< load
  PlaceTable work{};                     ///< of the workers, whether waited for or not
  std::array<double, kPlaces> steady{};  ///< waits after the first
  std::vector<TransformRow> rows;
  std::int64_t batches = 0;
  std::int64_t missing = 0;
  std::int64_t overruns = 0;
  std::int64_t sampled_batches = 0;
  std::int64_t sampled_samples = 0;
  std::deque<Demand> demands;  ///< of the latest batches
  Kinds rebuilt{};             ///< ns in which batches were rebuilt
  double handed = 0;           ///< ns of next() that are neither fetching nor waiting
  std::int64_t rebuilds = 0;
  std::int64_t hands = 0;

 private:
  /// Time of one thread of a worker, with what it did.
  struct Stretch {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Shares shares;
  };
  struct Worker {
    // The latest records, for the waits that reach back to them: of its main thread, of its feeder.
    std::deque<WorkerRecord> fetched, fed;
    Stretch start;
    bool any_ratio = false;
    double of_cpu = 0, of_rest = 0;  ///< the transforms' share of the data set's CPU time and rest
  };

  void add_if(Place place, std::int64_t ns) {
    if (ns > 0) add_wait(place, static_cast<double>(ns));
  }
  std::int64_t walk(const std::vector<Stretch>& stretches, std::int64_t begin, std::int64_t end,
                    Place gap);
  void fetch_stretches(const Worker& worker, std::int64_t since);
  void main_stretches(const Worker& worker, const WorkerRecord& record, const WorkerRecord* next,
                      std::int64_t since);
  void feed_stretches(const Worker& worker, std::int64_t since);
  Shares transfer_shares(const Stretch& stretch, const Kinds& kinds, Place place) const;
  Shares remember(const WorkerRecord& record, const Parts& parts, std::int64_t started);
  void add_work(const Shares& shares);
  void add_dataset(const Worker& worker, const WorkerRecord& record, Shares& shares) const;
  void sample(Worker& worker, const WorkerRecord& record, const Parts& parts);

  std::int64_t generation_ = 0;
  std::unordered_map<std::int64_t, Worker> workers_;
  std::vector<Stretch> stretches_;  ///< of the wait that is being split
  std::vector<Stretch> main_;       ///< of the worker's main thread meanwhile
};

}  // namespace millrace::measure
