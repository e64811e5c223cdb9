// Turns runs into rows, intervals, verdicts and warnings.
#include "study/sweep/sweep_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;
using Runs = std::vector<std::vector<SweepRecord>>;

std::vector<double> values_of(const std::vector<SweepRecord>& runs, const std::string& name) {
  std::vector<double> values;
  for (const SweepRecord& run : runs) values.push_back(run.figure(name));
  return values;
}

/// Returns one cell's effects against its reference.
std::vector<double> effects_of(const std::vector<SweepRecord>& cell,
                               const std::vector<SweepRecord>& reference, const std::string& name,
                               bool differences) {
  const auto mine = values_of(cell, name);
  const auto others = values_of(reference, name);
  if (!differences) return log_ratios(mine, others);
  std::vector<double> effects;
  for (std::size_t i = 0; i < std::min(mine.size(), others.size()); ++i)
    effects.push_back(mine[i] - others[i]);
  return effects;
}

/// Warns of blocks that were interrupted: events in between are part of their differences.
void warn_of_cut_blocks(const SweepTable& table, std::vector<std::string>& warnings) {
  for (std::size_t repeat = 0; repeat < table.repeats(); ++repeat) {
    std::set<std::string> sessions;
    double first = INFINITY, last = 0;
    for (const auto& cell : table.runs) {
      if (cell.empty()) continue;
      sessions.insert(cell[repeat].session);
      first = std::min(first, cell[repeat].begun);
      last = std::max(last, cell[repeat].begun);
    }
    if (sessions.size() > 1)
      warnings.push_back(
          fmt::format("block {} was cut by an interruption: its runs began up to {:.0f} s apart",
                      repeat + 1, last - first));
  }
}

void warn_of_outliers(const SweepTable& table, std::vector<std::string>& warnings) {
  for (const SweepMetric& metric : table.metrics())
    for (const auto& runs : table.runs) {
      const auto values = values_of(runs, metric.name);
      if (!std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }))
        continue;
      const auto found = outliers(values);
      for (std::size_t r = 0; r < found.size(); ++r)
        if (found[r])
          warnings.push_back(fmt::format("{} of {} lies far from the row's other runs", metric.name,
                                         runs[r].name));
    }
}

/// Sets the figure speedup of every run: its rate over that of its block's reference.
void set_speedups(Runs& runs, const std::vector<std::size_t>& reference) {
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (std::size_t r = 0; r < runs[i].size(); ++r)
      runs[i][r].more["speedup"] =
          runs[i][r].figures.images_per_s / runs[reference[i]][r].figures.images_per_s;
}

/// Compares the rows of each group with their reference by one metric.
std::vector<Comparison> comparisons(const SweepTable& table, const SweepMetric& metric,
                                    double confidence) {
  std::vector<Comparison> all(table.rows.size());
  const bool differences = by_differences(table.runs, metric);
  for (std::size_t reference = 0; reference < table.rows.size(); ++reference) {
    std::vector<std::size_t> members;
    std::vector<std::vector<double>> effects;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      if (i == reference || table.rows[i].reference != reference || table.runs[i].empty()) continue;
      members.push_back(i);
      effects.push_back(effects_of(table.runs[i], table.runs[reference], metric.name, differences));
    }
    const auto compared = compare(effects, {.margin = margin_of(table.margins, metric, differences),
                                            .more_is_faster = metric.more_is_faster,
                                            .confidence = confidence,
                                            .differences = differences,
                                            .is_speed = metric.is_speed});
    for (std::size_t i = 0; i < compared.size(); ++i) all[members[i]] = compared[i];
  }
  return all;
}

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_json(const Interval& interval) {
  return {{"mean", finite(interval.mean)},
          {"low", finite(interval.low)},
          {"high", finite(interval.high)}};
}

Json to_json(const Comparison& comparison) {
  return {{comparison.difference ? "difference" : "ratio", finite(comparison.ratio.mean)},
          {"low", finite(comparison.ratio.low)},
          {"high", finite(comparison.ratio.high)},
          {"low_90", finite(comparison.equivalence.low)},
          {"high_90", finite(comparison.equivalence.high)},
          {"smallest_detectable", finite(detectable_effect(comparison))},
          {"verdict", comparison.verdict == Verdict::none ? Json(nullptr)
                                                          : Json(name_of(comparison.verdict))}};
}

Json to_json(const SweepRecord& run) {
  Json json{{"run", run.name}, {"seed", run.seed}};
  for (const FigureName& one : kFigures) json[one.name] = finite(run.figures.*one.figure);
  json["noise"] = to_json(run.noise);
  for (const auto& [name, value] : run.more) json[name] = finite(value);
  return json;
}

}  // namespace

std::size_t SweepTable::repeats() const {
  std::size_t most = 0;
  for (const auto& cell : runs) most = std::max(most, cell.size());
  return most;
}

std::vector<SweepMetric> SweepTable::metrics() const {
  std::vector<SweepMetric> all{metric};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

const Comparison& SweepTable::comparison(std::size_t row, std::size_t index) const {
  return index == 0 ? rows[row].comparison : rows[row].others[index - 1];
}

std::vector<std::string> figure_names(const SweepDesign& design,
                                      const std::vector<SweepMetric>& metrics) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const FigureName& one : kFigures) add(one.name);
  for (const char* name : kMoreFigures) add(name);
  for (const SweepMetric& metric : metrics) add(metric.name);
  for (const std::string& name : design.figures) add(name);
  return names;
}

std::vector<std::size_t> references(const SweepDesign& design, const Runs& runs) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::size_t reference = i;
    for (std::size_t j = 0; j < i && reference == i; ++j)
      if (!runs[j].empty() && design.cells[j].group == design.cells[i].group) reference = j;
    all.push_back(reference);
  }
  return all;
}

bool by_differences(const Runs& runs, const SweepMetric& metric) {
  if (metric.is_share) return true;
  for (const auto& cell : runs)
    for (const SweepRecord& run : cell)
      if (run.figure(metric.name) <= 0) return true;
  return false;
}

double margin_of(const SweepMargins& margins, const SweepMetric& metric, bool differences) {
  return metric.is_share ? margins.share : differences ? 0 : margins.ratio;
}

std::vector<std::vector<double>> block_effects(const SweepDesign& design, const Runs& runs,
                                               const SweepMetric& metric) {
  const auto reference = references(design, runs);
  const bool differences = by_differences(runs, metric);
  std::vector<std::vector<double>> rows;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (reference[i] != i && !runs[i].empty())
      rows.push_back(effects_of(runs[i], runs[reference[i]], metric.name, differences));
  return rows;
}

SweepTable sweep_table(SweepDesign design, Runs runs, std::vector<SweepMetric> metrics,
                       SweepMargins margins, double confidence, std::vector<std::string> refusals) {
  const auto names = figure_names(design, metrics);
  SweepTable table{.design = std::move(design),
                   .metric = metrics.front(),
                   .others = {metrics.begin() + 1, metrics.end()},
                   .margins = margins,
                   .runs = std::move(runs),
                   .rows = {},
                   .warnings = {}};
  const auto reference = references(table.design, table.runs);
  set_speedups(table.runs, reference);
  table.rows.resize(table.runs.size());
  for (std::size_t i = 0; i < table.runs.size(); ++i) {
    table.rows[i].reference = reference[i];
    if (i < refusals.size()) table.rows[i].refusal = refusals[i];
    for (const std::string& name : names)
      table.rows[i].figures[name] =
          table.runs[i].empty() ? Interval{kNaN, kNaN, kNaN}
                                : figure_interval(values_of(table.runs[i], name), !is_share(name));
  }
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    const auto compared = comparisons(table, metrics[m], confidence);
    for (std::size_t i = 0; i < compared.size(); ++i)
      if (m == 0)
        table.rows[i].comparison = compared[i];
      else
        table.rows[i].others.push_back(compared[i]);
  }
  std::vector<Noise> noise;
  for (const auto& cell : table.runs)
    for (const SweepRecord& run : cell) noise.push_back(run.noise);
  table.warnings = noise_warnings(noise);
  warn_of_cut_blocks(table, table.warnings);
  warn_of_outliers(table, table.warnings);
  return table;
}

Json to_json(const SweepTable& table) {
  Json json{{"warnings", table.warnings}, {"cells", Json::array()}};
  const auto metrics = table.metrics();
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    Json cell{{"overrides", table.design.cells[i].overrides}};
    for (const auto& name : figure_names(table.design, metrics))
      cell["figures"][name] = to_json(table.rows[i].figures.at(name));
    const bool compared = !table.is_reference(i) && !table.runs[i].empty();
    cell["comparison"] = compared ? to_json(table.rows[i].comparison) : Json(nullptr);
    cell["runs"] = Json::array();
    for (const SweepRecord& run : table.runs[i]) cell["runs"].push_back(to_json(run));
    for (std::size_t m = 0; m < metrics.size(); ++m)
      cell["comparisons"][metrics[m].name] =
          compared ? to_json(table.comparison(i, m)) : Json(nullptr);
    if (!table.rows[i].refusal.empty()) cell["refusal"] = table.rows[i].refusal;
    json["cells"].push_back(std::move(cell));
  }
  return json;
}

}  // namespace millrace::study
