// Names of a run's figures, by which a sweep can compare its rows.
#pragma once

#include <string>
#include <vector>

namespace millrace::study {

/// A figure by which rows are compared.
struct SweepMetric {
  std::string name;  ///< path in summary.json, parts separated by dots, or a derived figure
  bool is_speed =
      true;  ///< a time or a rate: its verdict is faster or slower, else higher or lower
  bool more_is_faster = false;
  bool is_share = false;  ///< between 0 and 1, such as an accuracy: compared by differences
};

/// Returns the metric of that name. Throws UsageError if summary.json has no number that could be
/// meant.
SweepMetric sweep_metric(const std::string& name);
/// Returns the metrics of a list separated by commas. Throws UsageError, also for a repeated name.
std::vector<SweepMetric> sweep_metrics(const std::string& names);

/// Returns whether the figure lies between 0 and 1 and is shown as a percentage.
bool is_share(const std::string& name);

}  // namespace millrace::study
