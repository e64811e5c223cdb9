// Formats a profile's table and advice.
#include "study/report/profile_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/number_text.h"
#include "predict/rules.h"
#include "study/report/figures.h"

namespace millrace::study {
namespace {

std::string ratio_digits(double ratio) { return fmt::format("{:.3f}", ratio); }

std::string interval_text(const Outcome& one) {
  if (!std::isfinite(one.low)) return "";
  return ratio_digits(one.low) + " to " + ratio_digits(one.high);
}

/// Returns a measured ratio, with its interval if other programs disturbed it: "0.980 (0.91 to
/// 1.06)".
std::string measured_text(const Outcome& one) {
  std::string ratio = ratio_digits(*one.measured);
  if (!one.measured_interval) return ratio;
  return fmt::format("{} ({} to {})", ratio, ratio_digits(one.measured_interval->first),
                     ratio_digits(one.measured_interval->second));
}

/// Returns "1.383 times the baseline (1.312 to 1.454)", or that it was measured.
std::string gain_text(const Outcome& one) {
  if (one.measured) return ratio_digits(*one.measured) + " times the baseline (measured)";
  const std::string interval = interval_text(one);
  return ratio_digits(one.predicted) + " times the baseline" +
         (interval.empty() ? "" : " (" + interval + ")");
}

std::vector<const Outcome*> by_prediction(const std::vector<Outcome>& outcomes) {
  std::vector<const Outcome*> order;
  for (const Outcome& one : outcomes) order.push_back(&one);
  std::stable_sort(order.begin(), order.end(),
                   [](const Outcome* a, const Outcome* b) { return a->predicted > b->predicted; });
  return order;
}

}  // namespace

std::vector<std::vector<std::string>> change_rows(const std::vector<Outcome>& outcomes,
                                                  double baseline, bool verified) {
  std::vector<std::vector<std::string>> rows{
      {"change", "predicted images/s", "ratio", "90%", "measured", "ratio", "error"}};
  for (const Outcome* one : by_prediction(outcomes)) {
    const auto error = one->error();
    rows.push_back({one->change.text(), with_thousands(one->predicted * baseline),
                    ratio_digits(one->predicted), interval_text(*one),
                    one->measured             ? with_thousands(*one->measured * baseline)
                    : !one->change.runnable() ? "not run here"
                    : one->disturbed ? "void: " + with_thousands(*one->disturbed * baseline)
                    : verified       ? "void"
                                     : "-",
                    one->measured    ? measured_text(*one)
                    : one->disturbed ? ratio_digits(*one->disturbed)
                                     : "",
                    error ? base::signed_percent(*error) : ""});
  }
  return rows;
}

namespace {

/// Says under which condition predictions hold: they know nothing of other programs.
std::string condition_text(const Conclusion& conclusion) {
  return conclusion.bound == name_of(Bottleneck::others) ? ", without the other programs" : "";
}

}  // namespace

std::string advice_text(const Conclusion& conclusion, double baseline) {
  if (const Outcome* best = conclusion.advised())
    return fmt::format("advice{}: {} gives {} images/s, {}",
                       best->measured ? "" : condition_text(conclusion), best->change.text(),
                       with_thousands(best->measured.value_or(best->predicted) * baseline),
                       gain_text(*best));
  const Outcome* most = nullptr;
  for (const Outcome& one : conclusion.outcomes)
    if (can_be_given(one.change) && (most == nullptr || one.lower() > most->lower())) most = &one;
  std::string text = fmt::format("advice{}: none: ", condition_text(conclusion));
  text += most == nullptr
              ? "no change in the table can be made on this machine"
              : fmt::format("of the changes possible on this machine, {} gains most, {}",
                            most->change.text(), gain_text(*most));
  const auto order = by_prediction(conclusion.outcomes);
  if (!order.empty() && order.front()->predicted >= predict::kWorthwhile &&
      !can_be_given(order.front()->change))
    text += fmt::format("; {} ({}) needs another machine, or changes what is trained",
                        order.front()->change.text(), ratio_digits(order.front()->predicted));
  return text;
}

std::string workers_text(const Conclusion& conclusion, int configured, double baseline) {
  const WorkerRows rows = conclusion.enough_workers(configured);
  return fmt::format(
      "enough workers{}: loader.workers={} gives {} of at most {} images/s{}",
      condition_text(conclusion), rows.workers, with_thousands(rows.ratio * baseline),
      with_thousands(rows.best_ratio * baseline), rows.enough ? "" : ": as configured");
}

}  // namespace millrace::study
