// Splits every wait for a batch along that batch's own history (contract Wait breakdown). Nothing
// is estimated from averages of the run, and the parts add up to the wait exactly, in clock ticks.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "measure/batch_history.h"
#include "measure/quantiles.h"

namespace millrace::measure {

enum class Part {
  storage,         ///< I/O threads or workers were reading the awaited samples
  decode,          ///< the samples were being decoded
  augment,         ///< the samples were being augmented, stored or mixed
  queue,           ///< nobody worked on them: behind other batches, or their slot was not free
  cores,           ///< a worker held the samples, or the trainer was woken, but no core was free
  startup,         ///< the run's first batch, before any work on it began
  epoch_boundary,  ///< queue, for an epoch's first batch
  handover,        ///< next() itself: waking up, taking the batch, reporting failed samples
};
inline constexpr std::size_t kPartCount = 8;
inline constexpr std::array<std::string_view, kPartCount> kPartNames{
    "storage", "decode", "augment", "queue", "cores", "startup", "epoch_boundary", "handover"};

using PartTicks = std::array<base::Clock::Ticks, kPartCount>;
using PartSeconds = std::array<double, kPartCount>;

/// Splits single waits.
class WaitSplitter {
 public:
  /// Returns the parts of [asked, got]; they add up to its length exactly.
  ///
  /// The batch is ready when its last unit is, so the split walks back from there. Through that
  /// unit's stages: each stage, in proportion if samples took turns. While the unit waited for a
  /// worker: the batch's other units, which had the workers; queue if none had. While it was being
  /// read: storage. Before that: storage while other units of the batch were being read, otherwise
  /// queue.
  PartTicks split(const BatchHistory& batch);

 private:
  std::vector<std::pair<base::Clock::Ticks, const RangeHistory*>> by_end_;  ///< working memory
};

/// The wait breakdown of a run or an epoch, added up step by step.
class WaitBreakdown {
 public:
  /// Adds one step whose load took `load` ticks. Time outside of next() is handover.
  void add(const BatchHistory& batch, base::Clock::Ticks load);
  /// Sets the total of load so far. Time that belongs to no step, such as an interrupted wait, is
  /// handover.
  void complete(base::Clock::Ticks load);

  /// Returns the number of steps added.
  std::uint64_t steps() const { return steps_; }
  const PartTicks& ticks() const { return ticks_; }
  /// Returns the sums of all waits; steady_seconds() leaves out the loader's first wait, which is
  /// not representative.
  PartSeconds seconds() const;
  PartSeconds steady_seconds() const;
  /// Returns a quantile in seconds per step, accurate to 2%, of one part or of all of load. `q`
  /// lies in 0..1.
  double quantile(Part part, double q) const;
  double load_quantile(double q) const { return load_.at(q); }

 private:
  WaitSplitter splitter_;
  PartTicks ticks_{};
  PartTicks first_{};
  std::uint64_t steps_ = 0;
  std::array<Quantiles, kPartCount> step_;  ///< nonzero values only
  Quantiles load_;
};

/// Returns the sums since `before`, an earlier value of ticks().
PartSeconds seconds_since(const WaitBreakdown& blame, const PartTicks& before);

}  // namespace millrace::measure
