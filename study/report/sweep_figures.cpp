// Builds bar and line charts from a sweep's table.
#include "study/report/sweep_figures.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <optional>

namespace millrace::study {
namespace {

/// Returns "0" if one key is swept, else "workers=0, prefetch=2".
std::string row_name(const SweepTable& table, std::size_t row) {
  const auto& labels = table.design.cells[row].labels;
  if (labels.size() == 1) return labels[0];
  std::string name;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string& key = table.design.columns[i];
    name += fmt::format("{}{}={}", i == 0 ? "" : ", ", key.substr(key.rfind('.') + 1), labels[i]);
  }
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

void push(Series& series, const Interval& interval, double factor) {
  series.y.push_back(factor * interval.mean);
  series.low.push_back(factor * interval.low);
  series.high.push_back(factor * interval.high);
}

/// Returns one figure of all rows with intervals; nothing if no row has the value.
std::vector<Figure> figure_bars(const SweepTable& table, const char* name, Figure figure,
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

Figure time_bars(const SweepTable& table) {
  Figure figure = rows_figure(table, "load-update", "Load and update",
                              "Means per step; the table has their intervals.", "ms per step");
  figure.kind = FigureKind::stacked_bar;
  figure.series = {{.name = "load"}, {.name = "update"}};
  for (const SweepRow& row : table.rows) {
    figure.series[0].y.push_back(1e3 * row.figures.at("load_s_per_step").mean);
    figure.series[1].y.push_back(1e3 * row.figures.at("update_s_per_step").mean);
  }
  return figure;
}

/// Returns the ratios to the first row, with the intervals that decide verdicts and the margin
/// around 1.
Figure ratio_bars(const SweepTable& table) {
  Figure figure = rows_figure(
      table, "ratio", fmt::format("Ratio of {} to the first row", table.metric.name),
      table.repeats() < 2 ? "One run per row: no interval."
                          : fmt::format("With simultaneous intervals; within the dashed lines "
                                        "(margin {:g}) a row is equivalent.",
                                        table.margin),
      "ratio");
  Series series{.name = "ratio"};
  for (std::size_t row = 0; row < table.rows.size(); ++row)
    push(series, row == 0 ? Interval{1, NAN, NAN} : table.rows[row].comparison.ratio, 1);
  figure.series.push_back(std::move(series));
  for (const auto& [name, ratio] : {std::pair("1 + margin", 1 + table.margin),
                                    std::pair("1 / (1 + margin)", 1 / (1 + table.margin))})
    figure.series.push_back(
        {.name = name, .y = std::vector<double>(table.rows.size(), ratio), .bound = true});
  return figure;
}

std::optional<double> number_in_label(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

/// Returns a line for each combination of the other keys.
std::vector<Figure> worker_lines_of(const SweepTable& table) {
  const auto& columns = table.design.columns;
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
      if (i != at)
        name += fmt::format("{}{}={}", name.empty() ? "" : ", ",
                            columns[i].substr(columns[i].rfind('.') + 1), labels[i]);
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

}  // namespace

std::vector<Figure> sweep_figures(const SweepTable& table) {
  const std::string intervals = table.repeats() < 2 ? "" : "Means with 95% intervals.";
  std::vector<Figure> all;
  const auto append = [&all](std::vector<Figure> figures) {
    for (Figure& figure : figures) all.push_back(std::move(figure));
  };
  append(figure_bars(table, "images_per_s",
                     rows_figure(table, "rate", "Images per second", intervals, "images/s"), 1));
  all.push_back(time_bars(table));
  if (const std::string metric = table.metric.name; metric != "images_per_s")
    append(figure_bars(table, table.metric.name,
                       rows_figure(table, "metric", "The metric: " + metric, intervals, "seconds"),
                       1));
  if (table.rows.size() > 1) all.push_back(ratio_bars(table));
  append(worker_lines_of(table));
  append(figure_bars(
      table, "top1",
      rows_figure(table, "accuracy", "Accuracy on the test set", intervals, "top-1, %"), 100));
  return all;
}

}  // namespace millrace::study
