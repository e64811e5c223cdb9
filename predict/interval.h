// Medians, means and their intervals.
#pragma once

#include <limits>
#include <span>
#include <vector>

namespace millrace::predict {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Interval {
  double mean = 0;
  double low = 0;  ///< NaN, as `high`, if one observation gives no interval
  double high = 0;
};

/// Arithmetic mean and standard deviation of one value, with n - 1.
struct Moments {
  double mean = 0;
  double deviation = 0;
};
Moments moments_of(std::span<const double> values);

/// Returns the median; for an even number of values, the mean of the middle two. NaN for none.
double median(std::vector<double> values);

/// Returns Student's two-sided quantile: |T| is at most that with probability `confidence`. T has
/// `freedom` degrees of freedom, above 0.
double t_quantile(double freedom, double confidence);

/// Returns mean +- `critical` standard errors.
Interval interval_at(std::span<const double> values, double critical);

/// Returns the arithmetic mean with the Student's t interval that holds the true mean with
/// probability `confidence`. `values` are independent.
Interval t_interval(std::span<const double> values, double confidence);

}  // namespace millrace::predict
