// Steps that a device has been given and has not finished (two-clocks contract). Free of LibTorch.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "pipeline/loader/spans.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// One of them.
class QueuedStep {
 public:
  virtual ~QueuedStep() = default;
  /// Looks without waiting.
  virtual bool done() = 0;
  /// Waits until it is done. Throws RunError for a loss that is not a number.
  virtual FinishedStep finish() = 0;
};

class StepQueue {
 public:
  /// `most`: steps under way at a time, `train.inflight`; by the sync clock 0, as none outlasts its
  /// push().
  explicit StepQueue(int most) : max_(static_cast<std::size_t>(most)) {}

  /// Waits in device_wait until one more step may be given to the device.
  void make_room(pipeline::SpanClock& spans);
  /// After make_room(). By the sync clock waits until it is done, in device_wait.
  void push(std::unique_ptr<QueuedStep> step, pipeline::SpanClock& spans);
  /// Waits in device_wait until the device has none.
  void drain(pipeline::SpanClock& spans);
  /// What has been finished since the last call, in the order of the steps; waits for nothing.
  std::vector<FinishedStep> take();

 private:
  void finish_oldest();
  void shrink_to(std::size_t most, pipeline::SpanClock& spans);

  std::size_t max_;
  std::deque<std::unique_ptr<QueuedStep>> queued_;  ///< oldest first
  std::vector<FinishedStep> finished_;
};

}  // namespace millrace::train
