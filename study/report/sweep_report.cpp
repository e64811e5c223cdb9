// Puts a sweep's report together.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "measure/quantiles.h"
#include "predict/interval.h"
#include "study/analysis/whatif.h"
#include "study/records/run_files.h"
#include "study/report/figures.h"
#include "study/report/reports.h"
#include "study/sweep/sweep_table.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::vector<std::string>>;

/// Returns a sentence with the best row and the verdicts.
std::string sweep_verdict(const SweepTable& table) {
  const bool is_speed = table.metric.is_speed;
  std::size_t above = 0, below = 0, equivalent = 0, open = 0, identical = 0;
  for (const SweepRow& row : table.rows) {
    const Verdict verdict = row.comparison.verdict;
    above += verdict == Verdict::faster || verdict == Verdict::higher;
    below += verdict == Verdict::slower || verdict == Verdict::lower;
    equivalent += verdict == Verdict::equivalent;
    open += verdict == Verdict::inconclusive;
    identical += verdict == Verdict::identical;
  }
  if (above + below + equivalent + open + identical == 0)
    return fmt::format("no verdict: {} repeats, {} needed", table.repeats(), kRepeatsForVerdict);
  std::string text =
      fmt::format("by {}, against the first row: {} {}, {} {}, {} equivalent, {} inconclusive",
                  table.metric.name, above, is_speed ? "faster" : "higher", below,
                  is_speed ? "slower" : "lower", equivalent, open);
  if (identical > 0) text += fmt::format(", {} identical", identical);
  for (const Confounder& one : table.confounders) text += "; " + remark_on(one, table.design);
  return text;
}

/// Returns "0" if one key is swept, else "workers=0, prefetch=2".
std::string row_name(const SweepTable& table, std::size_t row) {
  const auto& labels = table.design.cells[row].labels;
  if (labels.size() == 1) return labels[0];
  const auto keys = short_names(table.design.columns);
  std::string name;
  for (std::size_t i = 0; i < labels.size(); ++i)
    name += fmt::format("{}{}={}", i == 0 ? "" : ", ", keys[i], labels[i]);
  return name;
}

std::string row_axis(const SweepTable& table) {
  return table.design.columns.size() == 1 ? table.design.columns[0] : "combination";
}

Figure rows_figure(const SweepTable& table, std::string id, std::string title, std::string caption,
                   std::string y_label) {
  Figure figure{.id = std::move(id),
                .title = std::move(title),
                .caption = std::move(caption),
                .kind = FigureKind::bar,
                .x_label = row_axis(table),
                .y_label = std::move(y_label)};
  for (std::size_t row = 0; row < table.rows.size(); ++row)
    figure.categories.push_back(row_name(table, row));
  return figure;
}

void push(Series& series, const predict::Interval& interval, double factor) {
  series.y.push_back(factor * interval.mean);
  series.low.push_back(factor * interval.low);
  series.high.push_back(factor * interval.high);
}

/// Returns one figure of all rows with intervals; nothing if no row has the value.
std::vector<Figure> figure_bars(const SweepTable& table, const std::string& name, Figure figure,
                                double factor) {
  Series series{.name = name};
  bool any = false;
  for (const SweepRow& row : table.rows) {
    push(series, row.figures.at(name), factor);
    any |= std::isfinite(series.y.back());
  }
  if (!any) return {};
  figure.series.push_back(std::move(series));
  return {std::move(figure)};
}

std::optional<double> number_in_label(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

/// Returns the value of `key` in a row's label; nothing if it is not swept or no number.
std::optional<double> swept_number(const SweepTable& table, std::size_t row, const char* key) {
  const auto& columns = table.design.columns;
  const auto column = std::find(columns.begin(), columns.end(), key);
  if (column == columns.end()) return {};
  const auto at = static_cast<std::size_t>(column - columns.begin());
  return number_in_label(table.design.cells[row].labels[at]);
}

fs::path run_of(const fs::path& sweep, const SweepTable& table, std::size_t row,
                std::size_t repeat = 0) {
  return sweep / "runs" / table.runs[row][repeat].name;
}

/// Returns load + update per step of each row, in ms, as the replay predicts them from the records
/// of the first row's first run. Returns nothing unless workers alone are swept, or if the records
/// do not suffice.
std::vector<double> predicted_ms(const fs::path& sweep, const SweepTable& table) {
  const auto is_refused = [](const auto& runs) { return runs.empty(); };
  if (table.repeats() == 0 || std::ranges::any_of(table.runs, is_refused) ||
      table.design.columns != std::vector<std::string>{"loader.workers"})
    return {};
  const fs::path first = run_of(sweep, table, 0);
  bool storage = false;
  for (const auto& [key, value] : config_at(first / "config.toml"))
    storage |= key.starts_with("data.storage.") && value != "0" && value != "0.0";
  std::optional<predict::ReplayInput> input =
      recorded_input(read_summary(first / "summary.json"), storage);
  if (!input) return {};
  std::vector<double> predicted;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const auto workers = swept_number(table, row, "loader.workers");
    // Other threads of LibTorch would be a second change.
    if (!workers || !(*workers >= 0 && *workers <= kMaxReplayed) ||
        (input->update_threads > 0 &&
         table.runs[row][0].figures.threads != table.runs[0][0].figures.threads))
      return {};
    input->workers = static_cast<int>(*workers);
    const predict::ReplayOutput output = replay(*input);
    predicted.push_back(1e3 * (output.load_s + output.update_s));
  }
  return predicted;
}

/// Returns load and update per step of each row; over workers, with the predicted curve.
std::vector<Figure> time_bars(const fs::path& sweep, const SweepTable& table) {
  Figure figure = rows_figure(table, "load-update", "Load and update",
                              "Means per step; the table has their intervals.", "ms per step");
  figure.kind = FigureKind::stacked_bar;
  const std::vector<double> predicted = predicted_ms(sweep, table);
  std::vector<Figure> all =
      bars(std::move(figure), {"load", "update"}, [&](const std::string& name, std::size_t row) {
        return 1e3 * table.rows[row].figures.at(name + "_s_per_step").mean;
      });
  for (Figure& one : all) {
    if (predicted.empty()) continue;
    one.caption += fmt::format(
        " Line: load + update as the replay predicts them from the first run with {}={}.",
        table.design.columns[0], one.categories[0]);
    one.series.push_back({.name = "predicted", .y = predicted, .line = true});
  }
  return all;
}

/// Returns accuracy over speed, one point per row.
std::vector<Figure> accuracy_over_speed(const SweepTable& table) {
  Figure figure{.id = "accuracy-speed",
                .title = "Accuracy beside speed",
                .caption = "Rows at the upper right are fast and accurate. Top-1 on the test set.",
                .kind = FigureKind::line,
                .x_label = "images/s",
                .y_label = "%"};
  if (table.repeats() >= 2) figure.caption += " With 95% intervals of the accuracy.";
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    Series point{.name = row_name(table, row),
                 .x = {table.rows[row].figures.at("images_per_s").mean}};
    push(point, table.rows[row].figures.at("top1"), 100);
    if (std::isfinite(point.x[0]) && std::isfinite(point.y[0]))
      figure.series.push_back(std::move(point));
  }
  if (figure.series.size() < 2) return {};
  return {std::move(figure)};
}

/// Returns the distribution of the step time of each row, over all repeats.
std::vector<Figure> step_ridge(const fs::path& sweep, const SweepTable& table) {
  constexpr std::size_t kMaxRows = 24;
  std::vector<Series> rows;
  for (std::size_t row = 0; row < std::min(table.rows.size(), kMaxRows); ++row) {
    measure::Quantiles steps;
    for (std::size_t repeat = 0; repeat < table.runs[row].size(); ++repeat)
      steps.add(read_steps(run_of(sweep, table, row, repeat) / "steps.csv").step);
    for (Series& one : distribution(row_name(table, row), steps)) rows.push_back(std::move(one));
  }
  std::string caption = "Load + update of each step, over all repeats.";
  if (table.rows.size() > kMaxRows) caption += fmt::format(" The first {} rows.", kMaxRows);
  return ridge({.id = "step-distribution",
                .title = "Distribution of the step time",
                .caption = std::move(caption)},
               std::move(rows));
}

/// Returns the ratios or differences to the first row, with the intervals that decide verdicts and
/// the margin around no effect.
Figure ratio_bars(const SweepTable& table) {
  const bool differences = by_differences(table.runs, table.metric);
  const double factor = table.metric.is_share ? 100 : 1;
  const double margin = margin_of(table.rules, table.metric, differences);
  const std::string kind = differences ? "difference" : "ratio";
  Figure figure =
      rows_figure(table, "ratio",
                  fmt::format("{} of {} to the first row", differences ? "Difference" : "Ratio",
                              table.metric.name),
                  table.repeats() < 2 ? "One run per row: no interval."
                  : margin > 0 ? fmt::format("With simultaneous intervals; within the dashed lines "
                                             "(margin {:g}) a row is equivalent.",
                                             margin)
                               : "With simultaneous intervals.",
                  table.metric.is_share ? "percentage points" : kind);
  Series series{.name = kind};
  for (std::size_t row = 0; row < table.rows.size(); ++row)
    push(series,
         !table.is_reference(row)  ? table.rows[row].comparison.ratio
         : table.runs[row].empty() ? predict::Interval{NAN, NAN, NAN}
                                   : predict::Interval{differences ? 0.0 : 1.0, NAN, NAN},
         differences ? factor : 1);
  figure.series.push_back(std::move(series));
  if (margin == 0) return figure;
  if (differences) {
    add_bound(figure, "+ margin", factor * margin);
    add_bound(figure, "- margin", -factor * margin);
  } else {
    add_bound(figure, "1 + margin", 1 + margin);
    add_bound(figure, "1 / (1 + margin)", 1 / (1 + margin));
  }
  return figure;
}

/// Returns a line for each combination of the other keys.
std::vector<Figure> worker_lines_of(const SweepTable& table) {
  const auto& columns = table.design.columns;
  const auto keys = short_names(columns);
  std::size_t at = 0;
  while (at < columns.size() && columns[at] != "loader.workers") ++at;
  if (at == columns.size()) return {};
  Figure figure{.id = "workers",
                .title = "Images per second by workers",
                .caption = table.repeats() < 2 ? "" : "With 95% intervals.",
                .kind = FigureKind::line,
                .x_label = "loader.workers",
                .y_label = "images/s"};
  std::map<std::string, std::size_t> lines;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const auto& labels = table.design.cells[row].labels;
    const auto workers = number_in_label(labels[at]);
    if (!workers) continue;  // workers=auto
    std::string name;
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (i != at) name += fmt::format("{}{}={}", name.empty() ? "" : ", ", keys[i], labels[i]);
    if (name.empty()) name = "images/s";
    const auto [line, fresh] = lines.emplace(name, figure.series.size());
    if (fresh) figure.series.push_back({.name = name});
    Series& series = figure.series[line->second];
    series.x.push_back(*workers);
    push(series, table.rows[row].figures.at("images_per_s"), 1);
  }
  if (figure.series.empty()) return {};
  return {std::move(figure)};
}

/// Returns rates, times, ratios and accuracies of the rows, with their intervals, and images/s over
/// workers if these are swept.
std::vector<Figure> sweep_figures(const fs::path& sweep, const SweepTable& table) {
  const std::string intervals = table.repeats() < 2 ? "" : "Means with 95% intervals.";
  std::vector<Figure> all;
  append(all,
         figure_bars(table, "images_per_s",
                     rows_figure(table, "rate", "Images per second", intervals, "images/s"), 1));
  append(all, time_bars(sweep, table));
  if (const std::string& metric = table.metric.name; metric != "images_per_s" && metric != "top1") {
    const char* const unit = is_share(metric)                                        ? "%"
                             : table.metric.is_speed && !table.metric.more_is_faster ? "seconds"
                                                                                     : "value";
    append(all, figure_bars(table, metric,
                            rows_figure(table, "metric", "The metric: " + metric, intervals, unit),
                            is_share(metric) ? 100 : 1));
  }
  if (table.rows.size() > 1) all.push_back(ratio_bars(table));
  append(all, worker_lines_of(table));
  append(all, step_ridge(sweep, table));
  append(all, figure_bars(
                  table, "top1",
                  rows_figure(table, "accuracy", "Accuracy on the test set", intervals, "top-1, %"),
                  100));
  append(all, accuracy_over_speed(table));
  return all;
}

/// Returns the configuration of each row's first run, where it differs from the first row's.
ReportTable row_configurations(const fs::path& sweep, const SweepTable& table, Report& report) {
  ReportTable differences{
      .id = "rows",
      .title = "Configuration of the rows",
      .caption = "Keys in which a row's first run differs from the first row's.",
      .header = {"row", "differs in"}};
  const auto config = [&](std::size_t row) {
    return config_at(run_of(sweep, table, row) / "config.toml");
  };
  ConfigColumn first{"first", {}};
  bool first_found = false;
  for (std::size_t row = 0; row < table.runs.size(); ++row) {
    if (table.runs[row].empty()) continue;
    ConfigColumn mine{"row", config(row)};
    if (mine.values.empty()) {
      report.notes.push_back(
          fmt::format("{} has no config.toml: not compared", table.runs[row][0].name));
      continue;
    }
    const bool is_first = !std::exchange(first_found, true);
    if (is_first) first = mine;
    if (first.values.empty()) continue;
    std::string text;
    for (const auto& cells : config_table({first, mine}).rows)
      text +=
          fmt::format("{}{} = {} (not {})", text.empty() ? "" : "; ", cells[0], cells[2], cells[1]);
    std::string name;
    for (const std::string& label : table.design.cells[row].labels)
      name += (name.empty() ? "" : ", ") + label;
    differences.rows.push_back({name, is_first       ? "(the reference)"
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
  if (sweep.table && !sweep.table->design.command.empty())
    report.facts.emplace_back("command", sweep.table->design.command);
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
  if (sweep.finished) report.facts.emplace_back("margin", fmt::format("{:g}", table.rules.ratio));
  report.figures = sweep_figures(path, table);
  // No verdicts before the end: each look would be another test.
  const Rows rows = text_rows(table, sweep.finished);
  if (sweep.finished) {
    report.verdict = sweep_verdict(table);
    for (const std::string& note : text_notes(table)) report.notes.push_back(note);
    for (std::size_t row = 0; row < table.rows.size(); ++row)
      if (!table.rows[row].refusal.empty())
        report.notes.push_back(fmt::format("{} {}: {}", table.design.cells[row].labels[0],
                                           table.design.command.empty() ? "was not run" : "failed",
                                           table.rows[row].refusal));
  }
  ReportTable results{.id = "table", .title = "The table", .header = rows.front()};
  results.rows.assign(rows.begin() + 1, rows.end());
  results.csv = csv_table(table);
  report.tables.insert(report.tables.begin(), std::move(results));
  if (table.repeats() > 0 && table.design.command.empty()) {
    ReportTable differences = row_configurations(path, table, report);
    report.tables.push_back(std::move(differences));
  }
  if (sweep.finished) {
    const Rows runs = csv_runs(table);
    ReportTable all{.id = "runs", .title = "Every run", .header = runs.front()};
    all.rows.assign(runs.begin() + 1, runs.end());
    report.tables.push_back(std::move(all));
  }
  return report;
}

}  // namespace millrace::study
