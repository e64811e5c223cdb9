// Classifies figures by their names.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "base/text.h"
#include "millrace/error.h"
#include "study/sweep/sweep_table.h"

namespace millrace::study {
namespace {

/// Numbers of summary.json, and figures derived from several of them (sweep_record.h).
constexpr std::array kNumbers{"images_per_s",
                              "wall_s",
                              "load_s",
                              "update_s",
                              "other_s",
                              "load_s_per_step",
                              "update_s_per_step",
                              "update_s_per_step_median",
                              "setup_steps",
                              "setup_update_s",
                              "epoch_s",
                              "speedup",
                              "first_batch_s",
                              "unaccounted_s",
                              "top1",
                              "top5",
                              "train_top1",
                              "test_loss",
                              "train_loss",
                              "host_bytes",
                              "peak_rss_bytes",
                              "peak_device_bytes",
                              "cpu_utilization",
                              "gpu_utilization",
                              "gpu_memory_utilization",
                              "device_busy_s",
                              "device_submissions",
                              "device_starved",
                              "device_gap_load_s",
                              "device_gap_other_s",
                              "load_s_mean",
                              "load_s_max",
                              "update_s_mean",
                              "update_s_max",
                              "straggler_rank",
                              "network_wait_s",
                              "workers_needed",
                              "cores",
                              "memory_bytes",
                              "world_size",
                              "seed",
                              "params",
                              "workers",
                              "io_threads",
                              "prefetch",
                              "threads",
                              "batch",
                              "accumulate",
                              "inflight",
                              "epochs",
                              "steps",
                              "images",
                              "rank_images",
                              "failed",
                              "resumed_from_step"};
/// Objects and lists of summary.json that hold numbers.
constexpr std::array kHolders{"spans",       "blame",        "blame_step",    "per_class",
                              "ranks",       "loader_cpu_s", "cold",          "dataset",
                              "device_gaps", "auto_workers", "setup_updates", "device_parts",
                              "remote"};

/// Returns the part before the first dot.
std::string head_of(const std::string& name) { return name.substr(0, name.find('.')); }

bool is_any_of(std::string_view name, const auto& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_seconds(const std::string& name) {
  constexpr std::array kSeconds{"spans", "blame", "blame_step", "loader_cpu_s", "device_gaps"};
  return name.ends_with("_s") || name.ends_with("_s_per_step") ||
         name.ends_with("_s_per_step_median") || name.ends_with("_s_mean") ||
         name.ends_with("_s_max") || is_any_of(head_of(name), kSeconds) ||
         name.starts_with("remote.storage.");
}

}  // namespace

bool is_share(const std::string& name) {
  return name == "top1" || name == "top5" || name == "train_top1" ||
         name.ends_with("utilization") || head_of(name) == "per_class";
}

SweepMetric sweep_metric(const std::string& name) {
  const bool below = name.find('.') != std::string::npos;
  if (!(below ? is_any_of(head_of(name), kHolders) : is_any_of(name, kNumbers))) {
    std::vector<std::string> names(kNumbers.begin(), kNumbers.end());
    for (const char* holder : kHolders) names.push_back(std::string(holder) + ".");
    const std::string near = base::nearest(below ? head_of(name) + "." : name, names);
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
