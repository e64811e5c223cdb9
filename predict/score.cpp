#include "predict/score.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "predict/interval.h"
#include "predict/rules.h"

namespace millrace::predict {

bool Prediction::has_effect() const {
  return std::max(std::abs(predicted - 1), std::abs(measured - 1)) >= kCountedEffect;
}

Score score_of(std::span<const Prediction> predictions) {
  Score score;
  std::vector<double> errors;
  double ours = 0;
  double none = 0;
  for (const Prediction& one : predictions) {
    if (std::isfinite(one.low)) {
      ++score.with_interval;
      score.held += one.measured >= one.low && one.measured <= one.high;
    }
    if (!one.has_effect()) continue;
    if (one.is_arithmetic) {
      ++score.arithmetic;
      continue;
    }
    errors.push_back(std::abs(one.error()));
    ours += std::abs(one.error());
    none += std::abs(1 / one.measured - 1);
  }
  if (errors.empty()) return score;
  score.counted = static_cast<int>(errors.size());
  score.worst_error = *std::max_element(errors.begin(), errors.end());
  score.median_error = median(std::move(errors));
  // Where nothing changed, "no change" has no error: it is given that of the least counted effect.
  const double least = score.counted * (1 - 1 / (1 + kCountedEffect));
  score.skill = 1 - ours / std::max(none, least);
  return score;
}

}  // namespace millrace::predict
