// Puts a sweep's report together.
#include "study/report/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "study/records/config_table.h"
#include "study/report/run_facts.h"
#include "study/report/sweep_figures.h"
#include "study/sweep/sweep_files.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::vector<std::string>>;

/// Returns a sentence with the best row and the verdicts.
std::string sweep_verdict(const SweepTable& table) {
  std::size_t faster = 0, slower = 0, equivalent = 0, open = 0;
  for (std::size_t row = 1; row < table.rows.size(); ++row) {
    const Verdict verdict = table.rows[row].comparison.verdict;
    faster += verdict == Verdict::faster;
    slower += verdict == Verdict::slower;
    equivalent += verdict == Verdict::equivalent;
    open += verdict == Verdict::inconclusive;
  }
  if (faster + slower + equivalent + open == 0)
    return fmt::format("no verdict: {} repeats, {} needed", table.repeats(), kRepeatsForVerdict);
  return fmt::format(
      "by {}, against the first row: {} faster, {} slower, {} equivalent, {} "
      "inconclusive",
      table.metric.name, faster, slower, equivalent, open);
}

/// Returns the configuration of each row's first run, where it differs from the first row's.
ReportTable row_configurations(const fs::path& sweep, const SweepTable& table, Report& report) {
  ReportTable differences{
      .id = "rows",
      .title = "Configuration of the rows",
      .caption = "Keys in which a row's first run differs from the first row's.",
      .header = {"row", "differs in"}};
  const auto config = [&](std::size_t row) {
    return config_at(sweep / "runs" / table.runs[row][0].name / "config.toml");
  };
  ConfigColumn first{"first", {}};
  for (std::size_t row = 0; row < table.runs.size(); ++row) {
    ConfigColumn mine{"row", config(row)};
    if (mine.values.empty()) {
      report.notes.push_back(
          fmt::format("{} has no config.toml: not compared", table.runs[row][0].name));
      continue;
    }
    if (row == 0) first = mine;
    if (first.values.empty()) continue;
    std::string text;
    for (const auto& cells : config_table({first, mine}).rows)
      text +=
          fmt::format("{}{} = {} (not {})", text.empty() ? "" : "; ", cells[0], cells[2], cells[1]);
    std::string name;
    for (const std::string& label : table.design.cells[row].labels)
      name += (name.empty() ? "" : ", ") + label;
    differences.rows.push_back({name, row == 0       ? "(the reference)"
                                      : text.empty() ? "nothing"
                                                     : text});
  }
  return differences;
}

ReportTable finished_runs(const std::vector<SweepRecord>& runs) {
  ReportTable table{.id = "runs",
                    .title = "Finished runs",
                    .caption = "",
                    .header = {"run", "load ms/step", "update ms/step", "images/s", "top-1"}};
  for (const SweepRecord& run : runs) {
    const auto text = [](double value, double factor, int digits) {
      return std::isfinite(value) ? fmt::format("{:.{}f}", factor * value, digits) : "-";
    };
    table.rows.push_back({run.name, text(run.figures.load_s_per_step, 1e3, 4),
                          text(run.figures.update_s_per_step, 1e3, 4),
                          with_thousands(run.figures.images_per_s),
                          text(run.figures.top1, 100, 2)});
  }
  return table;
}

}  // namespace

Report sweep_report(const fs::path& path) {
  const SweepFiles sweep = read_sweep(path);
  Report report;
  report.title = "Sweep " + path.filename().string();
  if (!sweep.recipe.empty()) report.title += ": " + sweep.recipe;
  report.facts.emplace_back("state", sweep.finished ? "finished" : "not finished");
  if (!sweep.finished) {
    report.notes.push_back(
        fmt::format("no sweep.json: the sweep is still going, or was stopped; {} "
                    "of {} runs that started have finished. Intervals cover the complete "
                    "repeats so far, without a verdict",
                    sweep.runs.size(), sweep.begun));
    report.tables.push_back(finished_runs(sweep.runs));
  }
  if (!sweep.table) return report;
  const SweepTable& table = *sweep.table;
  report.facts.emplace_back("combinations", std::to_string(table.rows.size()));
  report.facts.emplace_back("repeats", std::to_string(table.repeats()));
  report.facts.emplace_back("metric", table.metric.name);
  if (sweep.finished) report.facts.emplace_back("margin", fmt::format("{:g}", table.margin));
  report.figures = sweep_figures(table);
  Rows rows = text_rows(table);
  if (sweep.finished) {
    report.verdict = sweep_verdict(table);
    for (const std::string& note : text_notes(table)) report.notes.push_back(note);
  } else if (table.repeats() >= kRepeatsForVerdict) {
    for (auto& row : rows) row.pop_back();  // no verdicts yet: each look would be another test
  }
  ReportTable results{.id = "table", .title = "The table", .header = rows.front()};
  results.rows.assign(rows.begin() + 1, rows.end());
  report.tables.insert(report.tables.begin(), std::move(results));
  if (table.repeats() > 0) {
    ReportTable differences = row_configurations(path, table, report);
    report.tables.push_back(std::move(differences));
  }
  return report;
}

}  // namespace millrace::study
