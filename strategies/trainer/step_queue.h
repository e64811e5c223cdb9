// A device's queue: marks in it, batches that it still reads, and steps in flight.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "base/private_api.h"
#include "millrace/loader.h"
#include "pipeline/loader/spans.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

// A point in a device's queue, reached once all earlier work is done.

class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  /// Checks without waiting.
  virtual bool reached() = 0;
  virtual void wait() = 0;
};

// Batches that a device still reads. Their slots return to the loader once the device has copied
// them. Independent of LibTorch.

class MILLRACE_PRIVATE_API InFlightBatches {
 public:
  /// Keeps `batch` until all marks of `until` are reached.
  void hold(Batch batch, std::vector<std::unique_ptr<DeviceMark>> until);
  /// Gives back batches that the device has read, in order. If more than `most` are left, waits for
  /// the oldest in device_wait.
  void keep_at_most(std::size_t most, pipeline::SpanClock& spans);
  std::size_t count() const { return held_.size(); }

 private:
  struct Held {
    Batch batch;
    std::vector<std::unique_ptr<DeviceMark>> until;
  };
  std::deque<Held> held_;  ///< oldest first
};

// Steps in flight on a device (contract Two clocks). Independent of LibTorch.

/// A step in flight.
class QueuedStep {
 public:
  virtual ~QueuedStep() = default;
  /// Checks without waiting.
  virtual bool done() = 0;
  /// Waits until the step is done. Throws RunError if its loss is not a number.
  virtual FinishedStep finish() = 0;
};

class MILLRACE_PRIVATE_API StepQueue {
 public:
  /// `most`: most steps in flight, `train.inflight`. 0 for the sync clock: push() then waits for
  /// its step.
  explicit StepQueue(int most) : max_(static_cast<std::size_t>(most)) {}

  /// Waits in device_wait until one more step may be queued. Call it before the step's first work
  /// is submitted: it then asks whether the device has run dry.
  void make_room(pipeline::SpanClock& spans);
  /// Adds a step; call make_room() first. With the sync clock, waits in device_wait until it is
  /// done.
  void push(std::unique_ptr<QueuedStep> step, pipeline::SpanClock& spans);
  /// Waits in device_wait until no step is in flight.
  void drain(pipeline::SpanClock& spans);
  /// Returns the steps finished since the last call, in order, without waiting.
  std::vector<FinishedStep> take();
  /// Returns the counts so far; all 0 with the sync clock, which drains the queue at every step.
  const Submissions& submissions() const { return submissions_; }

 private:
  void finish_oldest();
  void shrink_to(std::size_t most, pipeline::SpanClock& spans);

  std::size_t max_;
  std::deque<std::unique_ptr<QueuedStep>> queued_;  ///< oldest first
  std::vector<FinishedStep> finished_;
  bool fed_ = false;  ///< a step was pushed since the last drain()
  Submissions submissions_;
};

}  // namespace millrace::train
