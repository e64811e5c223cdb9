// Splits the device's time into work and gaps.
#include "strategies/trainer/device_timeline.h"

#include <algorithm>
#include <limits>

namespace millrace::train {

base::Clock::Ticks DeviceTime::gap_other() const {
  base::Clock::Ticks sum = -gap_load();
  for (const base::Clock::Ticks ticks : gaps) sum += ticks;
  return sum;
}

DeviceTimeline::DeviceTimeline(pipeline::SpanClock& spans) : spans_(spans), at_(spans.since()) {
  spans_.log_to(&host_);
}

void DeviceTimeline::step(base::Clock::Ticks begin, base::Clock::Ticks end) {
  gap(begin);
  const base::Clock::Ticks from = std::max(begin, at_);
  time_.busy += std::max<base::Clock::Ticks>(0, end - from);
  at_ = std::max(at_, end);
  forget();
}

DeviceTime DeviceTimeline::until(base::Clock::Ticks end) {
  gap(end);
  return time_;
}

void DeviceTimeline::gap(base::Clock::Ticks end) {
  for (std::size_t i = 0; i < host_.size() && at_ < end; ++i) {
    const base::Clock::Ticks left =
        i + 1 < host_.size() ? host_[i + 1].since : std::numeric_limits<base::Clock::Ticks>::max();
    const base::Clock::Ticks to = std::min(left, end);
    if (to <= at_) continue;
    time_.gaps[static_cast<std::size_t>(host_[i].span)] += to - at_;
    at_ = to;
  }
}

void DeviceTimeline::forget() {
  while (host_.size() > 1 && host_[1].since <= at_) host_.pop_front();
}

}  // namespace millrace::train
