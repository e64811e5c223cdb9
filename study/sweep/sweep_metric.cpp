// Classifies figures by their names.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"
#include "millrace/error.h"
#include "study/records/summary.h"
#include "study/sweep/sweep_table.h"

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;

/// Figures that are derived from several numbers of summary.json (sweep_record.h).
constexpr std::array kDerived{"epoch_s", "speedup", "host_bytes", "cpu_utilization"};

/// Returns the part before the first dot.
std::string head_of(const std::string& name) { return name.substr(0, name.find('.')); }

/// Returns the names of summary.json's numbers, and of its lists and objects that hold numbers with
/// a dot behind them.
std::vector<std::string> number_names() {
  std::vector<std::string> names(kDerived.begin(), kDerived.end());
  for (const auto& [name, property] : summary_schema()["properties"].items()) {
    const Json flat = property.flatten();
    if (std::none_of(flat.begin(), flat.end(),
                     [](const Json& value) { return value == "number" || value == "integer"; }))
      continue;
    const bool holds = property.contains("items") || property.contains("properties") ||
                       property.contains("additionalProperties");
    names.push_back(name + (holds ? "." : ""));
  }
  return names;
}

/// Returns the unit of a number or of what holds it; empty if it has none.
std::string unit_of(const std::string& name) {
  const Json& properties = summary_schema()["properties"];
  const auto found = properties.find(head_of(name));
  return found == properties.end() ? "" : found->value("unit", "");
}

bool is_seconds(const std::string& name) {
  return unit_of(name) == "s" || name.ends_with("_s") || name.starts_with("remote.storage.");
}

}  // namespace

bool is_share(const std::string& name) {
  return unit_of(name) == "share" || name.ends_with("utilization");
}

SweepMetric sweep_metric(const std::string& name) {
  const std::vector<std::string> names = number_names();
  const std::string known = name == head_of(name) ? name : head_of(name) + ".";
  if (std::find(names.begin(), names.end(), known) == names.end()) {
    const std::string near = base::nearest(known, names);
    throw UsageError(
        fmt::format("--metric {}: summary.json has no such number", name),
        fmt::format("did you mean {}{}? common ones: images_per_s, wall_s, load_s, update_s, top1, "
                    "test_loss, spans.forward",
                    near, near.ends_with('.') ? "NAME" : ""));
  }
  const bool rate = name == "images_per_s" || name == "speedup";
  return {name, rate || is_seconds(name), rate, is_share(name)};
}

std::vector<SweepMetric> sweep_metrics(const std::string& names) {
  std::vector<SweepMetric> metrics;
  std::istringstream in(names);
  for (std::string name; std::getline(in, name, ',');) {
    for (const SweepMetric& metric : metrics)
      if (metric.name == name)
        throw UsageError(fmt::format("--metric {}: {} is named twice", names, name),
                         "name each metric once");
    metrics.push_back(sweep_metric(name));
  }
  if (metrics.empty()) return {sweep_metric(names)};
  return metrics;
}

}  // namespace millrace::study
