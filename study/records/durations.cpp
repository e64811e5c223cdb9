// Adds up durations.

#include "study/records/durations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace millrace::study {

// Each number below kParts has a class of its own; [2^k, 2^(k+1)) has kParts classes of equal
// width.
void Quantiles::add(double seconds) {
  const double most = std::ldexp(1.0, kOctaves) - 1;
  const auto ns = static_cast<std::uint64_t>(std::clamp(seconds * 1e9, 0.0, most));
  const unsigned octave = ns < kParts ? 0 : static_cast<unsigned>(std::bit_width(ns / kParts));
  const std::uint64_t place = octave == 0 ? ns : (ns >> (octave - 1)) - kParts;
  ++counts_[std::min<std::size_t>(octave * kParts + place, counts_.size() - 1)];
  ++count_;
}

double Quantiles::at(double q, std::uint64_t zeros) const {
  const auto all = static_cast<double>(count_ + zeros);
  const auto wanted = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(q * all)));
  if (count_ == 0 || wanted <= zeros) return 0;
  std::uint64_t seen = zeros;
  std::size_t i = 0;
  while (i + 1 < counts_.size() && (seen += counts_[i]) < wanted) ++i;
  return middle(i);
}

void Quantiles::add(const Quantiles& other) {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
}

std::vector<Quantiles::Class> Quantiles::classes() const {
  std::vector<Class> all;
  for (std::size_t i = 0; i < counts_.size(); ++i)
    if (counts_[i] > 0) all.push_back({middle(i), counts_[i]});
  return all;
}

double Quantiles::middle(std::size_t i) {
  const auto octave = static_cast<unsigned>(i / kParts);
  const auto place = static_cast<double>(i % kParts);
  if (octave == 0) return place * 1e-9;
  return std::ldexp(place + kParts + 0.5, static_cast<int>(octave) - 1) * 1e-9;
}

// Sums of updates by what their step has set up.

void UpdateTimes::add(const measure::StepRecord& step) {
  const measure::SpanSeconds spans(step.ticks);
  const double seconds = spans.update;
  Sum& sum = sums_[static_cast<std::size_t>(step.set_up)];
  ++sum.steps;
  sum.seconds += seconds;
  sum.device_wait_s += spans.each[static_cast<std::size_t>(measure::Span::device_wait)];
  if (step.set_up == measure::SetUp::none && seconds_.size() < kExact)
    seconds_.push_back(static_cast<float>(seconds));
}

UpdateTimes::Sum UpdateTimes::set_up() const {
  Sum all;
  for (std::size_t i = 1; i < sums_.size(); ++i) {
    all.steps += sums_[i].steps;
    all.seconds += sums_[i].seconds;
    all.device_wait_s += sums_[i].device_wait_s;
  }
  return all;
}

double UpdateTimes::mean() const {
  const Sum& rest = of(measure::SetUp::none);
  return rest.steps > 0 ? rest.seconds / static_cast<double>(rest.steps)
                        : std::numeric_limits<double>::quiet_NaN();
}

double UpdateTimes::median() const {
  if (seconds_.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<float> sorted = seconds_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const double upper = *middle;
  if (sorted.size() % 2 == 1) return upper;
  return (upper + *std::max_element(sorted.begin(), middle)) / 2;
}

double UpdateTimes::spread() const {
  const double middle = median();
  if (!(middle > 0)) return 1;
  std::vector<float> sorted = seconds_;
  const auto high = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() * 9 / 10);
  std::nth_element(sorted.begin(), high, sorted.end());
  return *high / middle;
}

Named<SetUpRecord> set_up_records(const UpdateTimes& times) {
  Named<SetUpRecord> all;
  for (std::size_t i = 1; i < measure::kSetUpCount; ++i)
    if (const UpdateTimes::Sum& sum = times.of(static_cast<measure::SetUp>(i)); sum.steps > 0)
      all.emplace_back(measure::kSetUpNames[i], SetUpRecord{sum.steps, sum.seconds});
  return all;
}

}  // namespace millrace::study
