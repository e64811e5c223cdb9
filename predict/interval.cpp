#include "predict/interval.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstddef>

namespace millrace::predict {

Moments moments_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  Moments m;
  for (const double value : values) m.mean += value / n;
  for (const double value : values) m.deviation += (value - m.mean) * (value - m.mean);
  m.deviation = values.size() > 1 ? std::sqrt(m.deviation / (n - 1)) : 0;
  return m;
}

double median(std::vector<double> values) {
  if (values.empty()) return kNaN;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double t_quantile(double freedom, double confidence) {
  return boost::math::quantile(boost::math::students_t(freedom), (1 + confidence) / 2);
}

Interval interval_at(std::span<const double> values, double critical) {
  const Moments m = moments_of(values);
  if (values.size() < 2) return {m.mean, kNaN, kNaN};
  const double half =
      m.deviation > 0 ? critical * m.deviation / std::sqrt(static_cast<double>(values.size())) : 0;
  return {m.mean, m.mean - half, m.mean + half};
}

Interval t_interval(std::span<const double> values, double confidence) {
  const auto freedom = static_cast<double>(values.size()) - 1;
  return interval_at(values, values.size() < 2 ? kNaN : t_quantile(freedom, confidence));
}

}  // namespace millrace::predict
