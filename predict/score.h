// Accuracy of predictions.
#pragma once

#include <limits>
#include <span>

namespace millrace::predict {

/// A change's ratios of images/s to the baseline.
struct Prediction {
  double predicted = 1;
  double measured = 1;  ///< above 0
  /// 90% interval of `predicted`; NaN: unknown.
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
  /// Its rate follows from the settings by arithmetic, so that it says nothing about the model.
  bool is_arithmetic = false;

  /// Returns the prediction's error relative to the measurement.
  double error() const { return predicted / measured - 1; }
  /// Returns whether the change has a predicted or measured effect of at least kCountedEffect.
  bool has_effect() const;
};

/// Changes with an effect count unless they are arithmetic.
struct Score {
  int counted = 0;
  int arithmetic = 0;  ///< changes with such an effect that do not count
  /// Changes with an interval, however small their effect, and those inside it.
  int with_interval = 0, held = 0;
  double median_error = 0, worst_error = 0;  ///< relative errors over the counted changes
  /// 1 - sum of |error| / sum of |error of predicting no change|, over the counted changes.
  double skill = 0;
};
Score score_of(std::span<const Prediction> predictions);

}  // namespace millrace::predict
