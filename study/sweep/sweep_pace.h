// Time that a sweep still needs, from the runs that it has finished.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace millrace::study {

/// Estimates the remaining time. Rows may take different times, so each row's own runs count first.
class SweepPace {
 public:
  /// `left`: runs that each row still needs.
  explicit SweepPace(std::vector<std::size_t> left);

  /// Notes that a run of the row has ended after `seconds`.
  void finished(std::size_t row, double seconds);
  /// Drops the runs that the row still needs; returns their number.
  std::size_t drop(std::size_t row);
  /// Returns the seconds that remain, `into` seconds into a run of `row`; NaN before any run has
  /// finished.
  double remaining_s(std::size_t row, double into) const;

 private:
  double expected_s(std::size_t row) const;

  std::vector<std::size_t> left_;
  std::vector<double> sum_;
  std::vector<std::size_t> count_;
};

/// Says when a line of progress is due where no bar is shown.
class EachMinute {
 public:
  /// Returns whether a minute has passed since the last time that this returned true, or since 0.
  bool is_due(double now_s);

 private:
  double last_s_ = 0;
};

/// Returns "45 s", "12 min" or "3 h 05 min".
std::string duration_text(double seconds);

/// Returns the line of a sweep's progress: "3 of 10 runs, 2 min so far, about 5 min left".
std::string progress_text(std::size_t done, std::size_t all, double so_far_s, double remaining_s);

}  // namespace millrace::study
