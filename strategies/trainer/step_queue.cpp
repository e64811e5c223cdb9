// Batches and steps in flight on a device.
#include "strategies/trainer/step_queue.h"

#include <algorithm>
#include <utility>

namespace millrace::train {

// Returns batches once the device has copied them.

void InFlightBatches::hold(Batch batch, std::vector<std::unique_ptr<DeviceMark>> until) {
  held_.push_back({std::move(batch), std::move(until)});
}

void InFlightBatches::keep_at_most(std::size_t most, pipeline::SpanClock& spans) {
  const auto read = [](const Held& held) {
    return std::all_of(held.until.begin(), held.until.end(),
                       [](const auto& mark) { return mark->reached(); });
  };
  while (!held_.empty() && read(held_.front())) held_.pop_front();
  if (held_.size() <= most) return;
  spans.enter(pipeline::Span::device_wait);
  while (held_.size() > most) {
    for (const auto& mark : held_.front().until) mark->wait();
    held_.pop_front();
  }
}

// Bounds and drains the queue.

void StepQueue::finish_oldest() {
  const std::unique_ptr<QueuedStep> step = std::move(queued_.front());
  queued_.pop_front();
  finished_.push_back(step->finish());
}

void StepQueue::shrink_to(std::size_t most, pipeline::SpanClock& spans) {
  while (!queued_.empty() && queued_.front()->done()) finish_oldest();
  if (queued_.size() <= most) return;
  spans.enter(pipeline::Span::device_wait);
  while (queued_.size() > most) finish_oldest();
}

void StepQueue::make_room(pipeline::SpanClock& spans) {
  if (max_ == 0) return;
  shrink_to(max_ - 1, spans);
  if (!fed_) return;
  // Steps finish in order, so an empty queue has reached the end of the newest one.
  ++submissions_.steps;
  if (queued_.empty() || queued_.back()->done()) ++submissions_.starved;
}

void StepQueue::push(std::unique_ptr<QueuedStep> step, pipeline::SpanClock& spans) {
  queued_.push_back(std::move(step));
  fed_ = true;
  if (max_ == 0) drain(spans);
}

void StepQueue::drain(pipeline::SpanClock& spans) {
  shrink_to(0, spans);
  fed_ = false;  // the device is idle because the host has waited for it
}

std::vector<FinishedStep> StepQueue::take() {
  while (!queued_.empty() && queued_.front()->done()) finish_oldest();
  return std::exchange(finished_, {});
}

}  // namespace millrace::train
