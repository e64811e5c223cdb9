// Means of finished runs.
#include "study/sweep/sweep_pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace millrace::study {

SweepPace::SweepPace(std::vector<std::size_t> left)
    : left_(std::move(left)), sum_(left_.size()), count_(left_.size()) {}

void SweepPace::finished(std::size_t row, double seconds) {
  sum_[row] += seconds;
  ++count_[row];
  if (left_[row] > 0) --left_[row];
}

std::size_t SweepPace::drop(std::size_t row) { return std::exchange(left_[row], 0); }

double SweepPace::expected_s(std::size_t row) const {
  if (count_[row] > 0) return sum_[row] / static_cast<double>(count_[row]);
  const auto runs = std::accumulate(count_.begin(), count_.end(), std::size_t{0});
  return runs == 0 ? std::numeric_limits<double>::quiet_NaN()
                   : std::accumulate(sum_.begin(), sum_.end(), 0.0) / static_cast<double>(runs);
}

double SweepPace::remaining_s(std::size_t row, double into) const {
  double seconds = 0;
  for (std::size_t i = 0; i < left_.size(); ++i)
    if (left_[i] > 0) seconds += static_cast<double>(left_[i]) * expected_s(i);
  return std::isnan(seconds) ? seconds : seconds - std::min(into, expected_s(row));
}

bool EachMinute::is_due(double now_s) {
  constexpr double kMinute = 60;
  if (now_s - last_s_ < kMinute) return false;
  last_s_ = now_s;
  return true;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  constexpr long long kMinute = 60, kHour = 3600;
  if (whole < 2 * kMinute) return fmt::format("{} s", whole);
  if (whole < 2 * kHour) return fmt::format("{} min", (whole + kMinute / 2) / kMinute);
  return fmt::format("{} h {:02} min", whole / kHour, whole % kHour / kMinute);
}

std::string progress_text(std::size_t done, std::size_t all, double so_far_s, double remaining_s) {
  return fmt::format("{} of {} runs, {} so far, {}", done, all, duration_text(so_far_s),
                     std::isfinite(remaining_s)
                         ? fmt::format("about {} left", duration_text(remaining_s))
                         : "no estimate before the first run has ended");
}

}  // namespace millrace::study
