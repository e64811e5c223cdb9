// Puts a profile's report together.
#include "study/report/what_if_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "study/records/run_files.h"
#include "study/report/run_facts.h"
#include "study/report/run_figures.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// One change: rates in images/s; NaN if it was not measured.
struct WhatIf {
  std::vector<std::string> words;
  double predicted = NAN, measured = NAN, error = NAN;
  double predicted_ratio = NAN, measured_ratio = NAN;
  bool runs_here = true;

  std::string text() const {
    std::string all;
    for (const std::string& word : words) all += (all.empty() ? "" : " ") + word;
    return all;
  }
};

/// Returns the changes, largest prediction first.
std::vector<WhatIf> changes_in(const Json& json) {
  std::vector<WhatIf> all;
  if (!json.is_object() || !json.contains("what_if") || !json["what_if"].is_array()) return all;
  for (const Json& one : json["what_if"]) {
    WhatIf change;
    if (one.is_object() && one.contains("change") && one["change"].is_array())
      for (const Json& word : one["change"])
        if (word.is_string()) change.words.push_back(word.get<std::string>());
    change.predicted = number_at(one, {"predicted"});
    change.measured = number_at(one, {"measured"});
    change.error = number_at(one, {"error"});
    change.predicted_ratio = number_at(one, {"predicted_ratio"});
    change.measured_ratio = number_at(one, {"measured_ratio"});
    change.runs_here = text_at(one, {"runs_here"}) != "false";
    all.push_back(std::move(change));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const WhatIf& a, const WhatIf& b) { return a.predicted > b.predicted; });
  return all;
}

/// Returns the baseline's rate, which turns ratios into images/s.
double baseline_in(const Json& json) {
  if (json.is_object() && json.contains("what_if") && json["what_if"].is_array() &&
      !json["what_if"].empty())
    return number_at(json["what_if"][0], {"baseline"});
  const double rate = number_at(json, {"baseline_images_per_s"});
  return std::isfinite(rate) ? rate : number_at(json, {"images_per_s"});
}

Figure change_bars(const std::vector<WhatIf>& changes, double baseline) {
  Figure figure{
      .id = "what-if",
      .title = "Effect of changes",
      .caption = "Predicted by the replay, then measured; the dashed line is the baseline.",
      .kind = FigureKind::bar,
      .x_label = "change",
      .y_label = "images/s",
      .series = {{.name = "predicted"}, {.name = "measured"}}};
  for (const WhatIf& change : changes) {
    figure.categories.push_back(change.text());
    figure.series[0].y.push_back(change.predicted);
    figure.series[1].y.push_back(change.measured);
  }
  const auto& measured = figure.series[1].y;
  if (std::none_of(measured.begin(), measured.end(), [](double y) { return std::isfinite(y); }))
    figure.series.pop_back();
  figure.series.push_back(
      {.name = "as it is", .y = std::vector<double>(changes.size(), baseline), .bound = true});
  return figure;
}

/// Returns the number of workers if the change affects nothing else.
std::optional<double> only_workers(const WhatIf& change) {
  constexpr std::string_view kKey = "loader.workers=";
  if (change.words.size() != 1 || !change.words[0].starts_with(kKey)) return {};
  const std::string& word = change.words[0];
  double workers = 0;
  const auto [end, error] =
      std::from_chars(word.data() + kKey.size(), word.data() + word.size(), workers);
  if (error != std::errc() || end != word.data() + word.size()) return {};
  return workers;
}

std::vector<Figure> worker_lines(const Json& summary, const std::vector<WhatIf>& changes,
                                 double baseline) {
  struct Point {
    double workers, predicted, measured;
  };
  std::vector<Point> points;
  for (const WhatIf& change : changes)
    if (const auto workers = only_workers(change))
      points.push_back({*workers, change.predicted, change.measured});
  if (points.empty()) return {};
  const double now = number_at(summary, {"workers"});
  if (std::isfinite(now)) points.push_back({now, baseline, baseline});
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.workers < b.workers; });
  Figure figure{.id = "workers",
                .title = "Images per second by workers",
                .caption =
                    "Dashed: the rates that device, storage and cores allow with any number of "
                    "workers.",
                .kind = FigureKind::line,
                .x_label = "loader.workers",
                .y_label = "images/s",
                .series = {{.name = "predicted"}, {.name = "measured"}}};
  for (const Point& point : points) {
    figure.series[0].x.push_back(point.workers);
    figure.series[0].y.push_back(point.predicted);
    if (!std::isfinite(point.measured)) continue;
    figure.series[1].x.push_back(point.workers);
    figure.series[1].y.push_back(point.measured);
  }
  // The baseline alone makes no line.
  if (figure.series[1].y.size() < 2) figure.series.pop_back();
  for (const char* name : {"device", "storage", "cores"}) {
    const double rate = number_at(summary, {"ceilings", name});
    if (std::isfinite(rate))
      figure.series.push_back({.name = name,
                               .x = {points.front().workers, points.back().workers},
                               .y = {rate, rate},
                               .bound = true});
  }
  return {std::move(figure)};
}

std::vector<Figure> ceiling_bars(const Json& summary, double baseline) {
  Figure figure{.id = "ceilings",
                .title = "Rate that each resource would allow",
                .caption =
                    "Images per second if nothing else limited the run; the lowest is the "
                    "bound. The dashed line was measured.",
                .kind = FigureKind::bar,
                .x_label = "resource",
                .y_label = "images/s",
                .series = {{.name = "ceiling"}}};
  if (!summary.is_object() || !summary.contains("ceilings") || !summary["ceilings"].is_object())
    return {};
  for (const auto& [name, rate] : summary["ceilings"].items()) {
    if (!rate.is_number()) continue;
    figure.categories.push_back(name);
    figure.series[0].y.push_back(rate.get<double>());
  }
  if (figure.categories.empty()) return {};
  figure.series.push_back({.name = "as it is",
                           .y = std::vector<double>(figure.categories.size(), baseline),
                           .bound = true});
  return {std::move(figure)};
}

/// Returns one bar per stage: CPU time per sample.
std::vector<Figure> stage_bars(const Json& json) {
  Figure figure{.id = "stages",
                .title = "Cost of a sample",
                .caption =
                    "CPU time on an otherwise idle core; machinery is the graph "
                    "around the stages.",
                .kind = FigureKind::bar,
                .x_label = "stage",
                .y_label = "µs of CPU per sample",
                .series = {{.name = "CPU"}}};
  for (const char* stage : {"read", "decode", "augment", "machinery"}) {
    const double cpu = number_at(json, {"model", "cpu_s_per_image", stage});
    if (!(cpu > 0)) continue;
    figure.categories.emplace_back(stage);
    figure.series[0].y.push_back(1e6 * cpu);
  }
  return shown(std::move(figure));
}

/// Returns the baseline's load by its wait breakdown, one bar per part.
std::vector<Figure> blame_parts(const Json& summary) {
  Figure figure{.id = "blame",
                .title = "Wait breakdown",
                .caption = "The baseline's load.",
                .kind = FigureKind::bar,
                .x_label = "part of load",
                .y_label = "seconds",
                .series = {{.name = "load"}}};
  if (!summary.is_object() || !summary.contains("blame") || !summary["blame"].is_object())
    return {};
  for (const auto& [name, part] : summary["blame"].items()) {
    if (!part.is_number() || part.get<double>() <= 0) continue;
    figure.categories.push_back(name);
    figure.series[0].y.push_back(part.get<double>());
  }
  return shown(std::move(figure));
}

std::string ratio_text(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.3f}", ratio) : "";
}

ReportTable change_table(const std::vector<WhatIf>& changes) {
  ReportTable table{
      .id = "what-if-table",
      .title = "Predictions and measurements",
      .caption = "Ratios to the baseline; error: predicted / measured - 1.",
      .header = {"change", "predicted images/s", "ratio", "measured images/s", "ratio", "error"}};
  for (const WhatIf& one : changes)
    table.rows.push_back(
        {one.text(), with_thousands(one.predicted), ratio_text(one.predicted_ratio),
         std::isfinite(one.measured) ? with_thousands(one.measured)
         : one.runs_here             ? "-"
                                     : "not run here",
         ratio_text(one.measured_ratio),
         std::isfinite(one.error) ? fmt::format("{:+.1f}%", 100 * one.error) : ""});
  return table;
}

void add_profile_facts(const Json& summary, Report& report) {
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) report.facts.emplace_back(name, value);
  };
  add("the run's own verdict", text_at(summary, {"run_verdict"}));
  if (const std::string workers = text_at(summary, {"advice", "workers"}); !workers.empty())
    add("advice", fmt::format("loader.workers={} loader.prefetch={}: {} of at most {} images/s",
                              workers, text_at(summary, {"advice", "prefetch"}),
                              with_thousands(number_at(summary, {"advice", "images_per_s"})),
                              with_thousands(number_at(summary, {"advice", "best_images_per_s"}))));
  if (const double counted = number_at(summary, {"verification", "counted"}); counted > 0)
    add("verified", fmt::format("{} changes count: median error {:.1f}%, worst {:.1f}%, skill "
                                "{:.2f}",
                                counted, 100 * number_at(summary, {"verification", "median_error"}),
                                100 * number_at(summary, {"verification", "worst_error"}),
                                number_at(summary, {"verification", "skill"})));
  const double others = number_at(summary, {"others_busy"});
  if (others > 0.1)
    report.notes.push_back(
        fmt::format("other processes used up to {:.0f}% of the machine during a "
                    "run: repeat the profile on a quiet machine before trusting "
                    "small differences",
                    100 * others));
}

}  // namespace

Report profile_report(const fs::path& path) {
  const Json summary = read_json(path / "summary.json");
  const Json predictions = read_json(path / "predictions.json");
  const Json& all = summary.is_object() ? summary : predictions;

  Report report;
  report.title = "Profile " + path.filename().string();
  if (const std::string recipe = text_at(all, {"recipe"}); !recipe.empty())
    report.title += ": " + recipe;
  report.verdict = text_at(all, {"verdict"});
  add_profile_facts(summary, report);
  if (summary.is_object()) {
    const Facts facts = summary_facts(summary);
    report.facts.insert(report.facts.end(), facts.begin(), facts.end());
  } else {
    report.notes.emplace_back(
        "no summary.json: the profile is still going, or was stopped before "
        "its end; this report shows its predictions");
  }

  const std::vector<WhatIf> changes = changes_in(all);
  const double baseline = baseline_in(all);
  const auto append = [&report](std::vector<Figure> figures) {
    for (Figure& figure : figures) report.figures.push_back(std::move(figure));
  };
  append(ceiling_bars(summary, baseline));
  append(worker_lines(summary, changes, baseline));
  append(blame_parts(summary));
  append(blame_step_figure(summary));
  append(stage_bars(all));
  if (changes.empty()) {
    report.notes.emplace_back("no change has been predicted yet");
  } else {
    report.figures.push_back(change_bars(changes, baseline));
    report.tables.push_back(change_table(changes));
  }
  if (std::none_of(changes.begin(), changes.end(),
                   [](const WhatIf& one) { return std::isfinite(one.measured); }))
    report.notes.emplace_back(
        "nothing was measured: millrace profile ... --verify runs the changes");
  return report;
}

}  // namespace millrace::study
