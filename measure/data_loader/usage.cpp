#include "measure/data_loader/usage.h"

#include <algorithm>
#include <cmath>

namespace millrace::measure {
namespace {

constexpr std::int64_t kCost = 2000;  // one part in this many of the time may be spent on measuring
constexpr double kForgotten = 1.0 / 64;  // of what a PartEstimate knows, with each batch

}  // namespace

Usage operator+(const Usage& one, const Usage& other) {
  const auto sum = [](std::int64_t a, std::int64_t b) {
    return a == kUnknown || b == kUnknown ? kUnknown : a + b;
  };
  return {sum(one.cpu, other.cpu), sum(one.delay, other.delay)};
}

bool UsageSampler::due(std::int64_t now, std::int64_t cost) {
  if (picked_ < kAllOf) {
    ++picked_;
  } else if (now < next_) {
    return false;
  }
  const std::int64_t interval = cost * kCost;
  next_ =
      now + std::uniform_int_distribution<std::int64_t>(interval / 2, 3 * interval / 2)(numbers_);
  return true;
}

void PartEstimate::learn(std::int64_t whole, std::int64_t part) {
  weight_ = (1 - kForgotten) * weight_ + 1;
  const double share = 1 / weight_;
  const double whole_off = static_cast<double>(whole) - whole_;
  const double part_off = static_cast<double>(part) - part_;
  whole_ += share * whole_off;
  part_ += share * part_off;
  variance_ = (1 - share) * (variance_ + share * whole_off * whole_off);
  covariance_ = (1 - share) * (covariance_ + share * whole_off * part_off);
}

std::int64_t PartEstimate::of(std::int64_t whole) const {
  if (weight_ == 0) return kUnknown;
  const double slope = variance_ > 0 ? std::clamp(covariance_ / variance_, 0.0, 1.0) : 0;
  const double part = part_ + slope * (static_cast<double>(whole) - whole_);
  return std::clamp<std::int64_t>(std::llround(part), 0, std::max<std::int64_t>(0, whole));
}

Usage RecurringUsage::measured(const Reading& begin, const Reading& end) {
  const std::int64_t wall = end.wall - begin.wall;
  const std::int64_t cpu = end.cpu - begin.cpu;
  cpu_.learn(wall, cpu);
  knows_delay_ = begin.delay != kUnknown && end.delay != kUnknown;
  if (!knows_delay_) return {cpu, kUnknown};
  const std::int64_t delay = end.delay - begin.delay;
  off_core_ += static_cast<double>(std::max<std::int64_t>(0, wall - cpu));
  delay_ += static_cast<double>(delay);
  return {cpu, delay};
}

Usage RecurringUsage::estimated(std::int64_t wall) const {
  const std::int64_t cpu = cpu_.of(wall);
  if (cpu == kUnknown) return {};
  if (!knows_delay_) return {cpu, kUnknown};
  const double share = off_core_ > 0 ? std::min(1.0, delay_ / off_core_) : 0;
  return {cpu, static_cast<std::int64_t>(share * static_cast<double>(wall - cpu))};
}

}  // namespace millrace::measure
