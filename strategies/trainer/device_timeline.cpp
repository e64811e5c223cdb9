// Splits the device's time into work and gaps.
#include "strategies/trainer/device_timeline.h"

#include <algorithm>

namespace millrace::train {

base::Clock::Ticks DeviceTime::gap_other() const {
  base::Clock::Ticks sum = -gap_load();
  for (const base::Clock::Ticks ticks : gaps) sum += ticks;
  return sum;
}

DeviceTimeline::DeviceTimeline(pipeline::SpanClock& spans) : spans_(spans), at_(spans.since()) {
  spans_.record_to(this);
}

void DeviceTimeline::step(base::Clock::Ticks begin, base::Clock::Ticks end, bool set_up) {
  const pipeline::SpanTicks before = time_.gaps;
  gap(begin);
  const base::Clock::Ticks from = std::max(begin, at_);
  const base::Clock::Ticks busy = std::max<base::Clock::Ticks>(0, end - from);
  time_.busy += busy;
  if (set_up) {
    time_.setup_busy += busy;
    for (std::size_t i = 0; i < before.size(); ++i)
      time_.setup_gaps[i] += time_.gaps[i] - before[i];
  }
  at_ = std::max(at_, end);
  forget();
}

void DeviceTimeline::parts(const DeviceParts& parts) {
  time_.parts += parts;
  ++(parts.graph > 0 ? time_.graph_steps : time_.parts_steps);
}

DeviceTime DeviceTimeline::until(base::Clock::Ticks end) {
  gap(end);
  return time_;
}

void DeviceTimeline::gap(base::Clock::Ticks end) {
  const auto attribute = [&](std::size_t span, base::Clock::Ticks left) {
    const base::Clock::Ticks to = std::min(left, end);
    if (to <= at_) return;
    time_.gaps[span] += to - at_;
    at_ = to;
  };
  for (const pipeline::SpanRecord& span : host_)
    attribute(static_cast<std::size_t>(span.span), span.end);
  attribute(static_cast<std::size_t>(spans_.current()), end);
}

void DeviceTimeline::forget() {
  while (!host_.empty() && host_.front().end <= at_) host_.pop_front();
}

}  // namespace millrace::train
