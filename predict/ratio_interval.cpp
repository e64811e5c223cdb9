#include "predict/ratio_interval.h"

#include <algorithm>
#include <cmath>

namespace millrace::predict {

double unexplained(double error, double replayed, double measured) {
  if (!(replayed > 0) || !(measured > 0)) return error;
  return std::hypot(error, std::log(replayed / measured));
}

void RatioInterval::include(double ratio) {
  low_ = std::min(low_, ratio);
  high_ = std::max(high_, ratio);
}

RatioInterval RatioInterval::widened(double half_width) const {
  RatioInterval wider = *this;
  wider.low_ /= 1 + half_width;
  wider.high_ *= 1 + half_width;
  return wider;
}

}  // namespace millrace::predict
