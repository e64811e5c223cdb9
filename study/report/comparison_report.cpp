// Overlays the figures of several runs.
#include "study/report/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "study/analysis/wait_breakdown.h"
#include "study/records/config_table.h"
#include "study/records/run_files.h"
#include "study/report/run_facts.h"
#include "study/report/run_figures.h"
#include "study/report/run_report.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Returns the folders' names, or whole paths if two names are equal.
std::vector<std::string> names_of(const std::vector<fs::path>& runs) {
  std::vector<std::string> names;
  for (const fs::path& run : runs) names.push_back(run.filename().string());
  if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  names.clear();
  for (const fs::path& run : runs) names.push_back(run.string());
  return names;
}

std::string fact_in(const Report& report, const std::string& name) {
  for (const auto& [fact, value] : report.facts)
    if (fact == name) return value;
  return "-";
}

ReportTable fact_table(const std::vector<std::string>& names, const std::vector<Report>& reports) {
  ReportTable table{.id = "runs", .title = "The runs", .header = {""}};
  table.header.insert(table.header.end(), names.begin(), names.end());
  table.rows.push_back({"verdict"});
  for (const Report& report : reports)
    table.rows[0].push_back(report.verdict.empty() ? "-" : report.verdict);
  std::set<std::string> seen;
  for (const Report& report : reports)
    for (const auto& [name, value] : report.facts) {
      if (!seen.insert(name).second) continue;
      std::vector<std::string> row{name};
      for (const Report& one : reports) row.push_back(fact_in(one, name));
      table.rows.push_back(std::move(row));
    }
  return table;
}

/// Merges the line charts with one id of all reports into one chart.
std::vector<Figure> overlaid(const std::vector<std::string>& names,
                             const std::vector<Report>& reports) {
  std::vector<Figure> all;
  for (std::size_t i = 0; i < reports.size(); ++i)
    for (const Figure& figure : reports[i].figures) {
      if (figure.kind != FigureKind::line) continue;
      auto same = std::find_if(all.begin(), all.end(), [&](const Figure& other) {
        return other.id == figure.id && other.x_label == figure.x_label;
      });
      if (same == all.end()) {
        same = all.insert(all.end(), figure);
        // One run has two epochs and another has not: their figures have different x axes.
        for (const Figure& other : all)
          if (&other != &*same && other.id == figure.id) same->id += "-by-" + figure.x_label;
        same->series.clear();
      }
      for (Series series : figure.series) {
        series.name = figure.series.size() == 1 ? names[i] : names[i] + ", " + series.name;
        same->series.push_back(std::move(series));
      }
    }
  return all;
}

/// Returns one bar per run: the value at `keys` of its summary, times `factor`.
std::vector<Figure> bars(Figure figure, const std::vector<std::string>& names,
                         const std::vector<Json>& summaries, const std::vector<std::string>& series,
                         const std::string& suffix, const char* section, double factor) {
  figure.categories = names;
  for (const std::string& name : series) {
    figure.series.push_back({.name = name});
    for (const Json& summary : summaries) {
      const std::string key = name + suffix;
      figure.series.back().y.push_back(factor * (section == nullptr
                                                     ? number_at(summary, {key.c_str()})
                                                     : number_at(summary, {section, key.c_str()})));
    }
  }
  return shown(std::move(figure));
}

}  // namespace

Report comparison_report(const std::vector<fs::path>& runs) {
  const std::vector<std::string> names = names_of(runs);
  Report report;
  std::vector<Report> single;
  std::vector<Json> summaries;
  std::vector<ConfigColumn> configs;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    report.title += (i == 0 ? "" : i + 1 < runs.size() ? ", " : " and ") + names[i];
    single.push_back(run_report(runs[i]));
    summaries.push_back(read_json(runs[i] / "summary.json"));
    configs.push_back({names[i], config_at(runs[i] / "config.toml")});
    if (!summaries.back().is_object())
      report.notes.push_back(names[i] + ": " + state_of(summaries.back()));
  }
  const auto append = [&report](std::vector<Figure> figures) {
    for (Figure& figure : figures) report.figures.push_back(std::move(figure));
  };
  append(bars({.id = "step-time",
               .title = "Step time",
               .caption = "Means over the run.",
               .kind = FigureKind::stacked_bar,
               .x_label = "run",
               .y_label = "ms per step"},
              names, summaries, {"load", "update"}, "_s_per_step", nullptr, 1e3));
  append(bars({.id = "blame",
               .title = "Wait breakdown",
               .caption = "Load, split by what the trainer was waiting for.",
               .kind = FigureKind::stacked_bar,
               .x_label = "run",
               .y_label = "seconds"},
              names, summaries, {kPartNames.begin(), kPartNames.end()}, "", "blame", 1));
  append(bars({.id = "rate",
               .title = "Images per second",
               .caption = "Over the run. One run each: millrace sweep says whether a difference is "
                          "real.",
               .kind = FigureKind::bar,
               .x_label = "run",
               .y_label = "images/s"},
              names, summaries, {"images_per_s"}, "", nullptr, 1));
  append(overlaid(names, single));
  report.tables.push_back(fact_table(names, single));
  report.tables.push_back(config_table(configs));
  return report;
}

}  // namespace millrace::study
