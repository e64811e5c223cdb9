// Returns batches once the device has copied them.
#include "strategies/trainer/held_batches.h"

#include <algorithm>
#include <utility>

namespace millrace::train {

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

}  // namespace millrace::train
