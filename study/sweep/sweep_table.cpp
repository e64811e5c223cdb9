// Turns runs into rows, intervals, verdicts and notes.
#include "study/sweep/sweep_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "base/suggest.h"
#include "millrace/error.h"

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr SweepMetric kMetrics[] = {{"images_per_s", &SweepFigures::images_per_s, true},
                                    {"wall_s", &SweepFigures::wall_s, false},
                                    {"load_s", &SweepFigures::load_s, false},
                                    {"update_s", &SweepFigures::update_s, false}};

/// Presentation of a figure: its column, its unit as a factor, its digits.
struct Column {
  const char* title;
  const char* figure;
  double factor;
  int digits;
  const char* unit;
};
constexpr Column kColumns[] = {{"load ms/step", "load_s_per_step", 1e3, 4, ""},
                               {"update ms/step", "update_s_per_step", 1e3, 4, ""},
                               {"load s", "load_s", 1, 3, ""},
                               {"update s", "update_s", 1, 3, ""},
                               {"total s", "wall_s", 1, 2, ""},
                               {"images/s", "images_per_s", 1, 0, ""},
                               {"top-1", "top1", 100, 2, "%"}};

std::vector<double> values_of(const std::vector<SweepRecord>& runs, double SweepFigures::*figure) {
  std::vector<double> values;
  for (const SweepRecord& run : runs) values.push_back(run.figures.*figure);
  return values;
}

/// "1.23" or "1.23 [1.20 .. 1.26]".
std::string text_of(const Interval& interval, double factor, int digits, const char* unit) {
  if (!std::isfinite(interval.mean)) return "-";
  const auto print = [&](double v) { return fmt::format("{:.{}f}{}", v * factor, digits, unit); };
  if (!std::isfinite(interval.low)) return print(interval.mean);
  return fmt::format("{} [{} .. {}]", print(interval.mean), print(interval.low),
                     print(interval.high));
}

std::string percent(double ratio) { return fmt::format("{:.1f}%", 100 * (ratio - 1)); }

std::string verdict_text(const Comparison& comparison) {
  if (comparison.verdict != Verdict::inconclusive) return name_of(comparison.verdict);
  return fmt::format("inconclusive (detects {})", percent(detectable_ratio(comparison)));
}

/// Warns of blocks that were interrupted: events in between are part of their differences.
void warn_of_cut_blocks(const SweepTable& table, std::vector<std::string>& warnings) {
  for (std::size_t repeat = 0; repeat < table.repeats(); ++repeat) {
    std::set<std::string> sessions;
    double first = INFINITY, last = 0;
    for (const auto& cell : table.runs) {
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
  for (std::size_t i = 0; i < table.runs.size(); ++i) {
    const auto found = outliers(values_of(table.runs[i], table.metric.figure));
    for (std::size_t r = 0; r < found.size(); ++r)
      if (found[r])
        warnings.push_back(fmt::format("{} of {} lies far from the row's other runs",
                                       table.metric.name, table.runs[i][r].name));
  }
}

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_json(const Interval& interval) {
  return {{"mean", finite(interval.mean)},
          {"low", finite(interval.low)},
          {"high", finite(interval.high)}};
}

Json to_json(const Comparison& comparison) {
  return {{"ratio", finite(comparison.ratio.mean)},
          {"low", finite(comparison.ratio.low)},
          {"high", finite(comparison.ratio.high)},
          {"low_90", finite(comparison.equivalence.low)},
          {"high_90", finite(comparison.equivalence.high)},
          {"smallest_detectable", finite(detectable_ratio(comparison) - 1)},
          {"verdict", comparison.verdict == Verdict::none ? Json(nullptr)
                                                          : Json(name_of(comparison.verdict))}};
}

Json to_json(const SweepRecord& run) {
  Json json{{"run", run.name}, {"seed", run.seed}};
  for (const FigureName& one : kFigures) json[one.name] = finite(run.figures.*one.figure);
  json["noise"] = to_json(run.noise);
  return json;
}

}  // namespace

SweepMetric sweep_metric(const std::string& name) {
  std::vector<std::string> names;
  for (const SweepMetric& metric : kMetrics) {
    if (name == metric.name) return metric;
    names.emplace_back(metric.name);
  }
  throw UsageError(
      "--metric " + name + " is not measured",
      "did you mean " + base::nearest(name, names) + "? images_per_s, wall_s, load_s or update_s");
}

std::vector<std::vector<double>> block_log_ratios(const std::vector<std::vector<SweepRecord>>& runs,
                                                  const SweepMetric& metric) {
  std::vector<std::vector<double>> rows;
  for (std::size_t i = 1; i < runs.size(); ++i)
    rows.push_back(
        log_ratios(values_of(runs[i], metric.figure), values_of(runs[0], metric.figure)));
  return rows;
}

SweepTable sweep_table(SweepDesign design, std::vector<std::vector<SweepRecord>> runs,
                       const SweepMetric& metric, double margin, double confidence) {
  SweepTable table{std::move(design), metric, margin, std::move(runs), {}, {}};
  table.rows.resize(table.runs.size());
  for (std::size_t i = 0; i < table.runs.size(); ++i)
    for (const FigureName& one : kFigures)
      table.rows[i].figures[one.name] = figure_interval(values_of(table.runs[i], one.figure),
                                                        std::string_view(one.name) != "top1");
  const auto ratios = block_log_ratios(table.runs, metric);
  const auto compared = compare(
      ratios,
      {.margin = margin, .more_is_faster = metric.more_is_faster, .confidence = confidence});
  for (std::size_t i = 0; i < compared.size(); ++i) table.rows[i + 1].comparison = compared[i];

  std::vector<Noise> noise;
  for (const auto& cell : table.runs)
    for (const SweepRecord& run : cell) noise.push_back(run.noise);
  table.warnings = noise_warnings(noise);
  warn_of_cut_blocks(table, table.warnings);
  warn_of_outliers(table, table.warnings);
  return table;
}

std::vector<std::vector<std::string>> text_rows(const SweepTable& table) {
  const bool judged = table.repeats() >= kRepeatsForVerdict;
  std::vector<std::vector<std::string>> rows{table.design.columns};
  rows[0].emplace_back("threads");
  for (const Column& column : kColumns) rows[0].emplace_back(column.title);
  rows[0].push_back(fmt::format("{} ratio", table.metric.name));
  if (judged) rows[0].emplace_back("verdict");
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const SweepRow& of = table.rows[i];
    std::vector<std::string> row = table.design.cells[i].labels;
    row.push_back(text_of(
        {table.runs[i].empty() ? NAN : table.runs[i][0].figures.threads, NAN, NAN}, 1, 0, ""));
    for (const Column& column : kColumns)
      row.push_back(
          text_of(of.figures.at(column.figure), column.factor, column.digits, column.unit));
    row.push_back(i == 0 ? "1.000" : text_of(of.comparison.ratio, 1, 3, ""));
    if (judged) row.push_back(i == 0 ? "-" : verdict_text(of.comparison));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::string> text_notes(const SweepTable& table) {
  std::vector<std::string> notes;
  const std::size_t n = table.repeats();
  if (n < 2) {
    notes.emplace_back(
        "one run per row: no interval, so small differences mean nothing (--repeats N)");
  } else {
    const bool bootstrap = n >= kRepeatsForBootstrap;
    notes.push_back(
        fmt::format("means of {} runs with 95% intervals ({}); ratios to the first row within "
                    "blocks, with simultaneous intervals",
                    n, bootstrap ? "bootstrap-t" : "t"));
    if (n < kRepeatsForVerdict)
      notes.push_back(fmt::format("fewer than {} repeats: no verdict", kRepeatsForVerdict));
    else
      notes.push_back(fmt::format(
          "equivalent: 90% interval within {:.3f} .. {:.3f} (sweep.margin={:g}); inconclusive: "
          "the difference that would be detected 4 times out of 5",
          1 / (1 + table.margin), 1 + table.margin, table.margin));
  }
  for (const auto& warning : table.warnings) notes.push_back("warning: " + warning);
  return notes;
}

Json to_json(const SweepTable& table) {
  Json json{{"warnings", table.warnings}, {"cells", Json::array()}};
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    Json cell{{"overrides", table.design.cells[i].overrides}};
    for (const FigureName& one : kFigures)
      cell["figures"][one.name] = to_json(table.rows[i].figures.at(one.name));
    cell["comparison"] = i == 0 ? Json(nullptr) : to_json(table.rows[i].comparison);
    cell["runs"] = Json::array();
    for (const SweepRecord& run : table.runs[i]) cell["runs"].push_back(to_json(run));
    json["cells"].push_back(std::move(cell));
  }
  return json;
}

}  // namespace millrace::study
