// Adds up durations.

#include "study/records/update_times.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace millrace::study {

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
