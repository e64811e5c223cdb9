// 90% intervals of predicted ratios (docs/explanation/what-if.md).
#pragma once

namespace millrace::predict {

/// Returns the relative half width of an interval that no demand explains: `error`, by which the
/// replay is wrong where demands are known, and how far its rate of the run itself is from the
/// measured one. It is `error` where one of the rates is 0, which means unknown.
double unexplained(double error, double replayed, double measured);

/// A predicted ratio and its interval, which holds the ratios of replays with other demands.
class RatioInterval {
 public:
  explicit RatioInterval(double ratio) : ratio_(ratio), low_(ratio), high_(ratio) {}

  /// Lets the interval hold a ratio.
  void include(double ratio);
  /// Returns the interval, wider by a relative half width.
  RatioInterval widened(double half_width) const;

  double ratio() const { return ratio_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  double ratio_;
  double low_;
  double high_;
};

}  // namespace millrace::predict
