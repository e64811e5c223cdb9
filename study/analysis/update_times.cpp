// Sums of updates by what their step has set up.
#include "study/analysis/update_times.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace millrace::study {

void UpdateTimes::add(const pipeline::StepRecord& step) {
  const double seconds = pipeline::SpanSeconds(step.ticks).update;
  Sum& sum = sums_[static_cast<std::size_t>(step.set_up)];
  ++sum.steps;
  sum.seconds += seconds;
  if (step.set_up == pipeline::SetUp::none && seconds_.size() < kExact)
    seconds_.push_back(static_cast<float>(seconds));
}

UpdateTimes::Sum UpdateTimes::set_up() const {
  Sum all;
  for (std::size_t i = 1; i < sums_.size(); ++i) {
    all.steps += sums_[i].steps;
    all.seconds += sums_[i].seconds;
  }
  return all;
}

double UpdateTimes::mean() const {
  const Sum& rest = of(pipeline::SetUp::none);
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

nlohmann::ordered_json to_json(const UpdateTimes& times) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (std::size_t i = 1; i < pipeline::kSetUpCount; ++i) {
    const UpdateTimes::Sum& sum = times.of(static_cast<pipeline::SetUp>(i));
    if (sum.steps == 0) continue;
    json[std::string(pipeline::kSetUpNames[i])] = {{"steps", sum.steps}, {"update_s", sum.seconds}};
  }
  return json;
}

}  // namespace millrace::study
