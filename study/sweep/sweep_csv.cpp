// A sweep's table and runs as CSV: plain numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "predict/interval.h"
#include "study/sweep/sweep_columns.h"
#include "study/sweep/sweep_table.h"

namespace millrace::study {
namespace {

std::string plain_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "";
}

std::string plain_source(const SweepCell& cell, const std::string& figure, double factor) {
  const auto found = cell.source.find(figure);
  if (found == cell.source.end()) return "";
  const auto* value = std::get_if<double>(&found->second);
  return value == nullptr ? std::get<std::string>(found->second) : plain_number(*value * factor);
}

/// Returns the figures of the CSV files: all, or those that a command's runs have.
std::vector<std::string> csv_figures(const SweepTable& table) {
  auto names = figure_names(table.design, table.metrics());
  if (is_command(table))
    std::erase_if(names, [&](const std::string& name) { return !has_values(table, name); });
  return names;
}

/// Appends a column of numbers to CSV rows.
void add_csv_column(TextRows& rows, const std::string& title, const auto& cell) {
  rows[0].push_back(title);
  for (std::size_t i = 1; i < rows.size(); ++i) rows[i].push_back(cell(i - 1));
}

}  // namespace

TextRows csv_table(const SweepTable& table) {
  TextRows rows{table.design.columns};
  for (const SweepCell& cell : table.design.cells) rows.push_back(cell.labels);
  if (!is_command(table)) {
    const auto threads = threads_of_rows(table);
    add_csv_column(rows, "threads", [&](std::size_t i) { return threads[i]; });
    for (const Confounder& one : table.confounders)
      if (one.setting != "threads")
        add_csv_column(rows, one.setting, [&](std::size_t i) { return one.values[i]; });
  }
  const auto figures = csv_figures(table);
  const auto factor = [](const FigureColumn& look) { return look.digits < 0 ? 1 : look.factor; };
  const auto add_figure = [&](const std::string& name, const char* suffix,
                              double predict::Interval::*end) {
    const FigureColumn look = column_of(name);
    add_csv_column(rows, std::string(look.title) + suffix, [&](std::size_t i) {
      return plain_number(factor(look) * (table.rows[i].figures.at(name).*end));
    });
  };
  const auto add_effect = [&](std::size_t metric, const char* suffix,
                              double predict::Interval::*end) {
    const std::string title = effect_title(table, table.metrics()[metric]) + suffix;
    add_csv_column(rows, title, [&](std::size_t i) {
      const bool compared = !table.is_reference(i) && !table.runs[i].empty();
      return compared ? plain_number(table.comparison(i, metric).ratio.*end) : "";
    });
  };
  const auto add_verdict = [&](std::size_t metric) {
    add_csv_column(rows, metric == 0 ? "verdict" : table.others[metric - 1].name + " verdict",
                   [&](std::size_t i) -> std::string {
                     const Verdict verdict = table.comparison(i, metric).verdict;
                     return verdict == Verdict::none ? "" : name_of(verdict);
                   });
  };
  const auto first = figure_columns().first(kFirstColumns);
  for (const FigureColumn& column : first)
    if (std::find(figures.begin(), figures.end(), column.figure) != figures.end())
      add_figure(column.figure, "", &predict::Interval::mean);
  add_effect(0, "", &predict::Interval::mean);
  add_verdict(0);
  for (std::size_t m = 1; m < table.metrics().size(); ++m) {
    add_effect(m, "", &predict::Interval::mean);
    add_verdict(m);
  }
  const auto is_first = [&](const std::string& name) {
    return name == "threads" ||
           std::any_of(first.begin(), first.end(),
                       [&](const FigureColumn& column) { return name == column.figure; });
  };
  for (const auto& name : figures)
    if (!is_first(name)) add_figure(name, "", &predict::Interval::mean);
  for (const auto& name : figures) {
    if (name == "threads") continue;
    add_figure(name, " low", &predict::Interval::low);
    add_figure(name, " high", &predict::Interval::high);
  }
  for (std::size_t m = 0; m < table.metrics().size(); ++m) {
    add_effect(m, " low", &predict::Interval::low);
    add_effect(m, " high", &predict::Interval::high);
  }
  for (const auto& name : figures)
    if (has_source(table, name))
      add_csv_column(rows, std::string(column_of(name).title) + " source", [&](std::size_t i) {
        return plain_source(table.design.cells[i], name, factor(column_of(name)));
      });
  return rows;
}

TextRows csv_runs(const SweepTable& table) {
  TextRows rows{table.design.columns};
  for (const char* name : {"run", "repeat", "seed"}) rows[0].emplace_back(name);
  const auto figures = csv_figures(table);
  rows[0].insert(rows[0].end(), figures.begin(), figures.end());
  for (const char* name : {"steal", "others", "load_average", "mhz_begin", "mhz_end"})
    rows[0].emplace_back(name);
  for (std::size_t i = 0; i < table.runs.size(); ++i)
    for (const SweepRecord& run : table.runs[i]) {
      auto row = table.design.cells[i].labels;
      row.insert(row.end(), {run.name, std::to_string(run.repeat + 1), std::to_string(run.seed)});
      for (const auto& name : figures) row.push_back(plain_number(run.figure(name)));
      for (const double value : {run.noise.steal, run.noise.others, run.noise.load_average,
                                 run.noise.mhz_begin, run.noise.mhz_end})
        row.push_back(plain_number(value));
      rows.push_back(std::move(row));
    }
  return rows;
}

}  // namespace millrace::study
