// Accounts for a device's time and memory: its queue, its time line, its utilisation, and the
// batch size that fits. Independent of LibTorch and CUDA.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/private_api.h"
#include "measure/spans.h"
#include "millrace/loader.h"
#include "strategies/trainer/compute.h"
#include "strategies/trainer/device_report.h"

namespace millrace::train {

/// A point in a device's queue, reached once all earlier work is done.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  /// Checks without waiting.
  virtual bool reached() = 0;
  virtual void wait() = 0;
};

/// Marks whose owners have dropped them, for their device to place again.
using SpareMarks = std::vector<std::unique_ptr<DeviceMark>>;

/// Makes a mark a spare one when its owner drops it. Deletes it if there is nowhere to keep it.
class KeepSpare {
 public:
  KeepSpare() = default;
  explicit KeepSpare(std::shared_ptr<SpareMarks> spares) : spares_(std::move(spares)) {}
  void operator()(DeviceMark* mark) const {
    std::unique_ptr<DeviceMark> dropped(mark);
    if (spares_ != nullptr) spares_->push_back(std::move(dropped));
  }

 private:
  std::shared_ptr<SpareMarks> spares_;
};

/// A mark with the owner that asks for it. Drop it once it is reached, or once all that waits for
/// it has been submitted.
using OwnedMark = std::unique_ptr<DeviceMark, KeepSpare>;

/// Batches that a device still reads. Their slots return to the loader once the device has copied
/// them.
class MILLRACE_PRIVATE_API InFlightBatches {
 public:
  /// Keeps `batch` until all marks of `until` are reached.
  void hold(Batch batch, std::vector<OwnedMark> until);
  /// Gives back batches that the device has read, in order. If more than `most` are left, waits for
  /// the oldest in device_wait.
  void keep_at_most(std::size_t most, measure::SpanClock& spans);
  /// Does the same in the current span.
  void keep_at_most(std::size_t most);
  std::size_t count() const { return held_.size(); }

 private:
  struct Held {
    Batch batch;
    std::vector<OwnedMark> until;
  };
  void give_back_read();

  std::deque<Held> held_;  ///< oldest first
};

/// A step in flight on a device.
class QueuedStep {
 public:
  virtual ~QueuedStep() = default;
  /// Checks without waiting.
  virtual bool done() = 0;
  /// Waits until the step is done. Throws RunError if its loss is not a number.
  virtual FinishedStep finish() = 0;
};

/// Steps in flight on a device, oldest first (contract Two clocks).
class MILLRACE_PRIVATE_API StepQueue {
 public:
  /// `most`: most steps in flight, `train.inflight`. 0 for the sync clock: push() then waits for
  /// its step.
  explicit StepQueue(int most) : max_(static_cast<std::size_t>(most)) {}

  /// Waits in device_wait until one more step may be queued. Call it before the step's first work
  /// is submitted: it then asks whether the device has run dry.
  void make_room(measure::SpanClock& spans);
  /// Adds a step; call make_room() first. With the sync clock, waits in device_wait until it is
  /// done.
  void push(std::unique_ptr<QueuedStep> step, measure::SpanClock& spans);
  /// Waits in device_wait until no step is in flight.
  void drain(measure::SpanClock& spans);
  /// Returns the steps finished since the last call, in order, without waiting.
  std::vector<FinishedStep> take();
  /// Returns the counts so far; all 0 with the sync clock, which drains the queue at every step.
  const Submissions& submissions() const { return submissions_; }

 private:
  void finish_oldest();
  void shrink_to(std::size_t most, measure::SpanClock& spans);

  std::size_t max_;
  std::deque<std::unique_ptr<QueuedStep>> queued_;  ///< oldest first
  std::vector<FinishedStep> finished_;
  bool fed_ = false;  ///< a step was pushed since the last drain()
  Submissions submissions_;
};

/// Times from the run's start. Busy time and all gaps add up to it exactly, in ticks.
struct DeviceTime {
  base::Clock::Ticks busy = 0;  ///< time in steps, from a step's first work to its last
  measure::SpanTicks gaps{};    ///< gaps by the host's span; an evaluation's work counts as its gap
  base::Clock::Ticks setup_busy = 0;  ///< part of busy, in steps that also set something up
  measure::SpanTicks setup_gaps{};    ///< part of gaps, before the ends of these steps
  /// Sums over the steps whose parts were measured and that set nothing up.
  DeviceParts parts;
  std::uint64_t parts_steps = 0;  ///< number of those that ran eagerly
  std::uint64_t graph_steps = 0;  ///< number of those that ran as a graph

  /// Returns the gaps while the batch was not ready.
  base::Clock::Ticks gap_load() const {
    return gaps[static_cast<std::size_t>(measure::Span::first_batch)] +
           gaps[static_cast<std::size_t>(measure::Span::load)];
  }
  MILLRACE_PRIVATE_API base::Clock::Ticks gap_other() const;
};

/// A device's time beside the host's (contract Two clocks). Every moment of a run is either work on
/// a step or a gap, and each gap is attributed to the trainer thread's span.
class DeviceTimeline final : public measure::SpanLog {
 public:
  /// Follows the host's spans through `spans`, from the start of the current one.
  explicit DeviceTimeline(measure::SpanClock& spans);
  ~DeviceTimeline() override { spans_.drop(this); }
  DeviceTimeline(const DeviceTimeline&) = delete;
  DeviceTimeline& operator=(const DeviceTimeline&) = delete;

  /// Adds a step that the device worked on from `begin` to `end`, on the host's clock, in order.
  /// Overlap with the previous step counts for that one. `set_up`: the step has also set something
  /// up, and the gap before it counts likewise.
  void step(base::Clock::Ticks begin, base::Clock::Ticks end, bool set_up = false);
  /// Adds the parts of a step that sets nothing up.
  void parts(const DeviceParts& parts);
  /// Returns the times up to `end`. The device must have no step left.
  DeviceTime until(base::Clock::Ticks end);

 private:
  void add(const measure::SpanRecord& span) override { host_.push_back(span); }
  void gap(base::Clock::Ticks end);
  /// Drops the host's spans before `at_`.
  void forget();

  measure::SpanClock& spans_;
  std::deque<measure::SpanRecord> host_;  ///< ended spans
  base::Clock::Ticks at_;                 ///< end of the time accounted for
  DeviceTime time_;
};

/// Utilisation of a device as NVIDIA's driver reports it: means over the samples taken.
struct Utilization {
  double gpu = 0;     ///< share of the time in which a kernel ran, 0..1
  double memory = 0;  ///< share of the time in which device memory was read or written, 0..1
  std::uint64_t samples = 0;
};

/// Samples a device's utilisation through NVML during a run, if the library is installed.
class MILLRACE_PRIVATE_API UtilizationSampler {
 public:
  /// Samples the device with this PCI bus id ("0000:1b:00.0") every `interval_s` seconds, on its
  /// own thread. Does nothing without NVML, or if NVML does not know the device.
  explicit UtilizationSampler(const std::string& bus_id, double interval_s = 0.2,
                              const char* library = "libnvidia-ml.so.1");
  ~UtilizationSampler();
  UtilizationSampler(const UtilizationSampler&) = delete;
  UtilizationSampler& operator=(const UtilizationSampler&) = delete;

  /// Stops sampling. Empty if nothing could be read.
  std::optional<Utilization> stop();

 private:
  struct Nvml;

  void sample(double interval_s);

  void* device_ = nullptr;      ///< handle of NVML
  std::unique_ptr<Nvml> nvml_;  ///< functions only; the library stays loaded
  std::mutex mutex_;
  std::condition_variable end_;
  bool stop_ = false;
  Utilization sum_;
  std::thread thread_;
};

/// Peak memory of a step with `samples` samples.
struct MemoryUse {
  std::int64_t samples = 0;
  std::uint64_t bytes = 0;
};

/// Returns the largest number of samples whose bytes are at most `available`, by the line through
/// `small` and `large` (small.samples < large.samples). Empty if the line does not rise or no
/// sample fits.
std::optional<std::int64_t> samples_that_fit(const MemoryUse& small, const MemoryUse& large,
                                             std::uint64_t available);

/// Statistics of a device's allocator.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Releases cached memory and starts a new peak.
  virtual void reset() = 0;
  /// Returns the most bytes that tensors have held since reset().
  virtual std::uint64_t peak() const = 0;
  /// Returns the bytes that all tensors together may hold.
  virtual std::uint64_t available() const = 0;
};

/// Estimates the batch size that fits into a device's memory, by a straight line through two
/// smaller ones. Measures `step` with an eighth and a quarter of the samples that did not fit, or
/// with half of that, and so on, if `step` fails as well. Empty if there are then too few samples.
MILLRACE_PRIVATE_API std::optional<std::int64_t> find_samples_that_fit(
    std::int64_t too_many, DeviceMemory& memory, const std::function<void(std::int64_t)>& step);

}  // namespace millrace::train
