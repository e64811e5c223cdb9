// Compares several runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/wait_breakdown.h"
#include "study/records/summary.h"
#include "study/report/comparison.h"
#include "study/report/figures.h"
#include "study/report/reports.h"
#include "study/report/run_facts.h"
#include "study/sweep/confounders.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

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

/// Returns whether curves of several runs can share the figure: each run adds its lines, or one row
/// of its distributions.
bool is_shared(const Figure& figure) {
  return figure.kind == FigureKind::line || figure.kind == FigureKind::ridge;
}

/// Returns the bars that compare whole runs.
std::vector<Figure> run_bars(const std::vector<std::string>& names,
                             const std::vector<Summary>& summaries) {
  const auto figure = [&](const char* id, const char* title, const char* caption, FigureKind kind,
                          const char* unit) {
    return Figure{.id = id,
                  .title = title,
                  .caption = caption,
                  .kind = kind,
                  .x_label = "run",
                  .y_label = unit,
                  .categories = names};
  };
  std::vector<Figure> all =
      bars(figure("step-time", "Step time", "Means over the run.", FigureKind::stacked_bar,
                  "ms per step"),
           {"load", "update"}, [&](const std::string& name, std::size_t run) {
             const Summary& of = summaries[run];
             return 1e3 * to_number(name == "load" ? of.load_s_per_step : of.update_s_per_step);
           });
  append(all,
         bars(figure("blame", "Wait breakdown", "Load, split by what the trainer was waiting for.",
                     FigureKind::stacked_bar, "seconds"),
              {measure::kPartNames.begin(), measure::kPartNames.end()},
              [&](const std::string& name, std::size_t run) {
                const double* const seconds = find(summaries[run].blame, name);
                return seconds == nullptr ? NAN : *seconds;
              }));
  append(all, bars(figure("rate", "Images per second",
                          "Over the run. One run each: millrace sweep says whether a difference is "
                          "real.",
                          FigureKind::bar, "images/s"),
                   {"images_per_s"}, [&](const std::string&, std::size_t run) {
                     return to_number(summaries[run].images_per_s);
                   }));
  return all;
}

/// Differences of updates of single runs that are too large for noise of a few percent.
constexpr double kOtherUpdate = 1.1;

/// Notes updates that take another time though all keys that differ are the loader's.
void add_update_shifts(const std::vector<std::string>& names, const std::vector<Summary>& summaries,
                       const std::set<std::string>& keys, Report& report) {
  if (!are_of_the_loader(keys)) return;
  const auto update = [&](std::size_t run) {
    const Summary& of = summaries[run];
    return to_number(of.update_s_per_step_median ? of.update_s_per_step_median
                                                 : of.update_s_per_step);
  };
  for (std::size_t i = 1; i < names.size(); ++i) {
    const double ratio = update(i) / update(0);
    if (!(ratio > kOtherUpdate || ratio < 1 / kOtherUpdate)) continue;
    report.notes.push_back(fmt::format(
        "updates of {} take {:.2f} of the time of {}'s: no key of the loader sets that, "
        "so its cause is part of the comparison",
        names[i], ratio, names[0]));
  }
}

}  // namespace

std::vector<std::string> names_of(const std::vector<fs::path>& runs) {
  std::vector<std::string> names;
  for (const fs::path& run : runs) names.push_back(run.filename().string());
  if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  names.clear();
  for (const fs::path& run : runs) names.push_back(run.string());
  return names;
}

std::vector<Figure> overlaid(const std::vector<std::string>& names,
                             const std::vector<Report>& reports) {
  std::vector<Figure> all;
  for (std::size_t i = 0; i < reports.size(); ++i)
    for (const Figure& figure : reports[i].figures) {
      if (!is_shared(figure)) continue;
      auto same = std::find_if(all.begin(), all.end(), [&](const Figure& other) {
        return other.id == figure.id && other.x_label == figure.x_label;
      });
      if (same == all.end()) {
        same = all.insert(all.end(), figure);
        same->series.clear();
      }
      for (Series series : figure.series) {
        const bool ridge = figure.kind == FigureKind::ridge;
        if (ridge && series.name != kWholeStep) continue;  // one row per run
        series.name = ridge || figure.series.size() == 1 ? names[i] : names[i] + ", " + series.name;
        series.run = names[i];
        same->series.push_back(std::move(series));
      }
    }
  return all;
}

void make_distinct(std::vector<Figure>& figures) {
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const std::string id = figures[i].id, title = figures[i].title;
    bool twin = false;
    for (std::size_t j = i + 1; j < figures.size(); ++j) {
      if (figures[j].id == id) figures[j].id += "-by-" + figures[j].x_label;
      if (figures[j].title != title) continue;
      figures[j].title += " by " + figures[j].x_label;
      twin = true;
    }
    if (twin) figures[i].title += " by " + figures[i].x_label;
  }
}

std::set<std::string> keys_in(const ReportTable& configs) {
  std::set<std::string> keys;
  for (const auto& row : configs.rows) keys.insert(row[0]);
  return keys;
}

void add_confounders(const std::vector<Summary>& summaries, const std::set<std::string>& keys,
                     Report& report) {
  std::vector<Settings> settings;
  for (const Summary& summary : summaries) settings.push_back(settings_in(to_json(summary)));
  for (const Confounder& one : confounders(settings, keys))
    report.notes.push_back(remark_on(one, keys));
}

Report comparison_report(const std::vector<fs::path>& runs) {
  const std::vector<std::string> names = names_of(runs);
  Report report;
  std::vector<Report> single;
  std::vector<Summary> summaries;
  std::vector<ConfigColumn> configs;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    report.title += (i == 0 ? "" : i + 1 < runs.size() ? ", " : " and ") + names[i];
    single.push_back(run_report(runs[i]));
    summaries.push_back(read_summary(runs[i] / "summary.json"));
    configs.push_back({names[i], config_at(runs[i] / "config.toml")});
    if (!is_complete(summaries.back()))
      report.notes.push_back(names[i] + ": " + state_of(summaries.back()));
  }
  report.figures = run_bars(names, summaries);
  append(report.figures, overlaid(names, single));
  make_distinct(report.figures);
  report.tables.push_back(fact_table(names, single));
  report.tables.push_back(config_table(configs));
  const std::set<std::string> keys = keys_in(report.tables.back());
  add_confounders(summaries, keys, report);
  add_update_shifts(names, summaries, keys, report);
  return report;
}

}  // namespace millrace::study
