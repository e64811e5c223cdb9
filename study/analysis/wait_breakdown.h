// Why the trainer waited: every wait for a batch, split along that batch's own history (contract
// T3). Nothing is estimated from averages of the run, and the parts add up to the wait, to the
// tick.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/loader/history.h"
#include "study/analysis/quantiles.h"

namespace millrace::study {

enum class Part {
  storage,         ///< the awaited samples were being read
  decode,          ///< they were being decoded
  augment,         ///< augmented, stored, mixed
  queue,           ///< nobody worked on them: behind other batches, or their slot was not free
  cores,           ///< a worker had them, or the trainer was woken, but there was no core to run on
  startup,         ///< the run's first batch, before any work on it began
  epoch_boundary,  ///< queue, of an epoch's first batch
  handover,        ///< next() itself: waking up, taking over, telling of failed samples
};
inline constexpr std::size_t kPartCount = 8;
inline constexpr std::array<std::string_view, kPartCount> kPartNames{
    "storage", "decode", "augment", "queue", "cores", "startup", "epoch_boundary", "handover"};

using PartTicks = std::array<base::Clock::Ticks, kPartCount>;
using PartSeconds = std::array<double, kPartCount>;

/// Splits single waits.
class WaitSplitter {
 public:
  /// The parts of [asked, got]; their sum is its length, exactly.
  ///
  /// The batch is ready when its last unit is, so the way back from there is followed: through that
  /// unit's stages (in proportion, where samples took turns); while it waited for a worker, through
  /// the batch's own other units, which had the workers, and where none had, queue; while it was
  /// being read, storage; before, while others of its batch were being read, storage, else queue.
  PartTicks split(const pipeline::BatchHistory& batch);

 private:
  std::vector<std::pair<base::Clock::Ticks, const pipeline::UnitHistory*>>
      by_end_;  ///< working memory
};

/// A run's (or an epoch's) blame, added up step by step.
class WaitBreakdown {
 public:
  /// One step, whose load took `load` ticks in all: what lies outside of next() is handover.
  void add(const pipeline::BatchHistory& batch, base::Clock::Ticks load);
  /// So far load took `load` in all: what no step has of it (a wait that an interruption ended)
  /// is handover.
  void complete(base::Clock::Ticks load);

  /// Steps added.
  std::uint64_t steps() const { return steps_; }
  const PartTicks& ticks() const { return ticks_; }
  /// All waits, and all but the loader's first, which is no sign of how the run goes on.
  PartSeconds seconds() const;
  PartSeconds steady_seconds() const;
  /// Seconds a step, at `q` of 0 to 1, to 2%: of a part, and of all of load.
  double quantile(Part part, double q) const;
  double load_quantile(double q) const { return load_.at(q); }

 private:
  WaitSplitter splitter_;
  PartTicks ticks_{};
  PartTicks first_{};
  std::uint64_t steps_ = 0;
  std::array<Quantiles, kPartCount> step_;  ///< those that are not 0
  Quantiles load_;
};

/// {part: seconds}.
nlohmann::ordered_json to_json(const PartSeconds& seconds);
/// {"load" and each part: {"p50": s, "p90": s, "p99": s}} a step.
nlohmann::ordered_json step_json(const WaitBreakdown& blame);
/// Of all ticks since `before`, as ticks() gave them then.
PartSeconds seconds_since(const WaitBreakdown& blame, const PartTicks& before);

}  // namespace millrace::study
