#include "measure/data_loader/usage.h"

#include <algorithm>

namespace millrace::measure {
namespace {

constexpr std::int64_t kCost = 4000;  // one part in this many of the time may be spent on readings

}  // namespace

Usage operator+(const Usage& one, const Usage& other) {
  const auto sum = [](std::int64_t a, std::int64_t b) {
    return a == kUnknown || b == kUnknown ? kUnknown : a + b;
  };
  return {sum(one.cpu, other.cpu), sum(one.delay, other.delay)};
}

bool UsageSampler::due(std::int64_t now, std::int64_t cost) {
  if (now < next_) return false;
  const std::int64_t interval = cost * kCost;
  next_ =
      now + std::uniform_int_distribution<std::int64_t>(interval / 2, 3 * interval / 2)(numbers_);
  return true;
}

Usage RecurringUsage::measured(const Reading& begin, const Reading& end) {
  const std::int64_t wall = end.wall - begin.wall;
  cpu_ = end.cpu - begin.cpu;
  knows_delay_ = begin.delay != kUnknown && end.delay != kUnknown;
  if (!knows_delay_) return {cpu_, kUnknown};
  const std::int64_t delay = end.delay - begin.delay;
  off_core_ += static_cast<double>(std::max<std::int64_t>(0, wall - cpu_));
  delay_ += static_cast<double>(delay);
  return {cpu_, delay};
}

Usage RecurringUsage::estimated(std::int64_t wall) const {
  if (cpu_ == kUnknown) return {};
  const std::int64_t cpu = std::min(cpu_, wall);
  if (!knows_delay_) return {cpu, kUnknown};
  const double share = off_core_ > 0 ? std::min(1.0, delay_ / off_core_) : 0;
  return {cpu, static_cast<std::int64_t>(share * static_cast<double>(wall - cpu))};
}

}  // namespace millrace::measure
