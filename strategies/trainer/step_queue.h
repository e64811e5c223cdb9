// Steps in flight on a device (contract Two clocks). Independent of LibTorch.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "pipeline/loader/spans.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// A step in flight.
class QueuedStep {
 public:
  virtual ~QueuedStep() = default;
  /// Checks without waiting.
  virtual bool done() = 0;
  /// Waits until the step is done. Throws RunError if its loss is not a number.
  virtual FinishedStep finish() = 0;
};

class StepQueue {
 public:
  /// `most`: most steps in flight, `train.inflight`. 0 for the sync clock: push() then waits for
  /// its step.
  explicit StepQueue(int most) : max_(static_cast<std::size_t>(most)) {}

  /// Waits in device_wait until one more step may be queued.
  void make_room(pipeline::SpanClock& spans);
  /// Adds a step; call make_room() first. With the sync clock, waits in device_wait until it is
  /// done.
  void push(std::unique_ptr<QueuedStep> step, pipeline::SpanClock& spans);
  /// Waits in device_wait until no step is in flight.
  void drain(pipeline::SpanClock& spans);
  /// Returns the steps finished since the last call, in order, without waiting.
  std::vector<FinishedStep> take();

 private:
  void finish_oldest();
  void shrink_to(std::size_t most, pipeline::SpanClock& spans);

  std::size_t max_;
  std::deque<std::unique_ptr<QueuedStep>> queued_;  ///< oldest first
  std::vector<FinishedStep> finished_;
};

}  // namespace millrace::train
