// Chooses columns, formats figures and fits tables to a width.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "predict/interval.h"
#include "study/sweep/sweep_columns.h"
#include "study/sweep/sweep_table.h"

namespace millrace::study {
namespace {

std::string number(const FigureColumn& column, double value) {
  if (column.digits < 0) return fmt::format("{:.5g}", value);
  return fmt::format("{:.{}f}{}", value * column.factor, column.digits, column.unit);
}

/// "1.23" or, `with_interval`, "1.23 [1.20 .. 1.26]".
std::string text_of(const FigureColumn& column, const predict::Interval& interval,
                    bool with_interval) {
  if (!std::isfinite(interval.mean)) return "-";
  if (!with_interval || !std::isfinite(interval.low)) return number(column, interval.mean);
  return fmt::format("{} [{} .. {}]", number(column, interval.mean), number(column, interval.low),
                     number(column, interval.high));
}

/// "1.203 [1.190 .. 1.216]"; a difference with its sign, of shares in percentage points.
std::string effect_text(const SweepMetric& metric, const Comparison& comparison) {
  if (!std::isfinite(comparison.ratio.mean)) return "-";
  const auto print = [&](double value) {
    if (!comparison.difference) return fmt::format("{:.3f}", value);
    return metric.is_share ? fmt::format("{:+.2f}", 100 * value) : fmt::format("{:+.4g}", value);
  };
  if (!std::isfinite(comparison.ratio.low)) return print(comparison.ratio.mean);
  return fmt::format("{} [{} .. {}]", print(comparison.ratio.mean), print(comparison.ratio.low),
                     print(comparison.ratio.high));
}

/// "faster", or "faster (threads differ)" and "faster (updates differ)" where something else than
/// the swept keys does too. The time of updates is part of speeds alone.
std::string verdict_text(const SweepTable& table, std::size_t row, Verdict verdict, bool is_speed) {
  if (verdict == Verdict::inconclusive) return "too noisy";
  std::vector<std::string> others;
  for (const Confounder& one : table.confounders)
    if (one.differs[row]) others.push_back(one.setting);
  if (is_speed && table.rows[row].updates_differ) others.emplace_back("updates");
  if (others.empty() || verdict == Verdict::none) return name_of(verdict);
  return fmt::format("{} ({})", name_of(verdict), differ_text(others));
}

/// One column of a table for people.
struct TextColumn {
  std::string title;
  std::vector<std::string> cells;
  int priority = kLeast;

  std::size_t width() const {
    std::size_t most = title.size();
    for (const auto& cell : cells) most = std::max(most, cell.size());
    return most;
  }
};

bool is_metric(const SweepTable& table, const std::string& figure) {
  const auto metrics = table.metrics();
  return std::any_of(metrics.begin(), metrics.end(),
                     [&](const SweepMetric& metric) { return metric.name == figure; });
}

std::string source_text(const SweepCell& cell, const FigureColumn& column) {
  const auto found = cell.source.find(column.figure);
  if (found == cell.source.end()) return "";
  const auto* value = std::get_if<double>(&found->second);
  if (value == nullptr) return std::get<std::string>(found->second);
  std::string text = number(column, *value);
  // Published figures have the digits that they were published with, not zeros behind them.
  const auto unit = text.size() - std::string_view(column.digits < 0 ? "" : column.unit).size();
  auto end = unit;
  if (text.find('.') < unit) {
    while (text[end - 1] == '0') --end;
    if (text[end - 1] == '.') --end;
  }
  return text.erase(end, unit - end);
}

TextColumn figure_column(const SweepTable& table, const std::string& figure, bool brief,
                         bool with_interval) {
  const FigureColumn look = column_of(figure);
  TextColumn column{brief ? look.brief : look.title, {}, look.priority};
  const bool sourced = has_source(table, figure);
  if (sourced) column.title += " (source)";
  if (is_metric(table, figure)) column.priority = kMetric;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    column.cells.push_back(text_of(look, table.rows[i].figures.at(figure), with_interval));
    const std::string source = sourced ? source_text(table.design.cells[i], look) : "";
    if (!source.empty()) column.cells.back() += " (" + source + ")";
  }
  return column;
}

/// Returns effect and verdict columns of one metric.
std::vector<TextColumn> comparison_columns(const SweepTable& table, std::size_t metric,
                                           bool judged) {
  const SweepMetric of = table.metrics()[metric];
  const bool differences = by_differences(table.runs, of);
  std::vector<TextColumn> columns{{effect_title(table, of), {}, kMetric}};
  if (judged && table.repeats() >= kRepeatsForVerdict)
    columns.push_back({metric == 0 ? "verdict" : of.name + " verdict", {}, kMetric});
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const bool reference = table.is_reference(i);
    const Comparison& comparison = table.comparison(i, metric);
    const bool empty = table.runs[i].empty();
    columns[0].cells.push_back(empty         ? "-"
                               : !reference  ? effect_text(of, comparison)
                               : differences ? "0"
                                             : "1.000");
    if (columns.size() > 1)
      columns[1].cells.push_back(
          reference || empty ? "-" : verdict_text(table, i, comparison.verdict, of.is_speed));
  }
  return columns;
}

std::vector<TextColumn> label_columns(const SweepTable& table, bool brief) {
  std::vector<TextColumn> columns;
  const auto names = brief ? short_names(table.design.columns) : table.design.columns;
  for (std::size_t c = 0; c < names.size(); ++c) {
    columns.push_back({names[c], {}, kAlways});
    for (const SweepCell& cell : table.design.cells) columns.back().cells.push_back(cell.labels[c]);
  }
  return columns;
}

/// Returns the figures between labels and comparisons. Those of kMoreFigures only where some run
/// has them.
std::vector<std::string> shown_figures(const SweepTable& table) {
  if (!table.design.figures.empty()) return table.design.figures;
  std::vector<std::string> names;
  const std::size_t always = is_command(table) ? 0 : kFirstColumns;
  const auto columns = figure_columns();
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (i < always || has_values(table, columns[i].figure)) names.emplace_back(columns[i].figure);
  for (const SweepMetric& metric : table.metrics())
    if (std::find(names.begin(), names.end(), metric.name) == names.end())
      names.push_back(metric.name);
  return names;
}

/// Returns all columns after the labels.
std::vector<TextColumn> value_columns(const SweepTable& table, bool brief, bool judged) {
  std::vector<TextColumn> columns;
  bool has_threads = false;
  for (const Confounder& one : table.confounders) {
    columns.push_back({one.setting, one.values, kMetric});
    has_threads |= one.setting == "threads";
  }
  if (table.design.figures.empty() && !is_command(table) && !has_threads)
    columns.push_back({"threads", threads_of_rows(table), kFirstToGo});
  const bool is_study = !table.design.figures.empty();
  for (const auto& name : shown_figures(table))
    if (!brief || is_study || has_values(table, name))
      columns.push_back(figure_column(table, name, brief, !brief));
  if (is_study && table.repeats() < 2) return columns;  // speedup is a column there
  for (std::size_t m = 0; m < table.metrics().size(); ++m)
    for (TextColumn& column : comparison_columns(table, m, judged))
      columns.push_back(std::move(column));
  return columns;
}

std::size_t width_of(const std::vector<TextColumn>& columns) {
  std::size_t width = 0;
  for (const TextColumn& column : columns) width += (width > 0 ? 2 : 0) + column.width();
  return width;
}

/// Removes the least telling columns until the rest fits; returns the titles of those.
std::vector<std::string> fit(std::vector<TextColumn>& columns, std::size_t width) {
  std::vector<std::string> left_out;
  while (width_of(columns) > width) {
    // The last of equal ones.
    std::size_t worst = 0;
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (columns[i].priority >= columns[worst].priority) worst = i;
    if (columns[worst].priority <= kMetric) break;
    left_out.insert(left_out.begin(), columns[worst].title);
    columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(worst));
  }
  return left_out;
}

/// Replaces labels that take more than half of the width by the rows' numbers.
std::vector<TextColumn> numbered(const SweepTable& table, const std::vector<TextColumn>& labels,
                                 std::size_t width, std::vector<std::string>& legend) {
  if (width_of(labels) <= width / 2) return labels;
  TextColumn numbers{"row", {}, kAlways};
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    numbers.cells.push_back(std::to_string(i + 1));
    std::string text;
    for (const TextColumn& column : labels)
      text += fmt::format("{}{}{}", text.empty() ? "" : ", ",
                          labels.size() > 1 ? column.title + "=" : "", column.cells[i]);
    legend.push_back(fmt::format("row {}: {}", i + 1, text));
  }
  return {std::move(numbers)};
}

/// Splits columns into tables of at most `width`, each with the labels.
std::vector<std::vector<TextColumn>> wrapped(const std::vector<TextColumn>& labels,
                                             const std::vector<TextColumn>& values,
                                             std::size_t width) {
  std::vector<std::vector<TextColumn>> tables{labels};
  for (const TextColumn& column : values) {
    const bool fits = width_of(tables.back()) + 2 + column.width() <= width;
    if (!fits && tables.back().size() > labels.size()) tables.push_back(labels);
    tables.back().push_back(column);
  }
  return tables;
}

/// Says why a row has no figures.
std::string remark_of(const SweepTable& table, const std::string& refusal) {
  return (is_command(table) ? "failed: " : "not run: ") + refusal;
}

/// Returns the rows of each group as a block.
void append_blocks(const SweepTable& table, const std::vector<TextColumn>& columns,
                   bool with_remarks, std::vector<TextBlock>& blocks) {
  std::string group;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const std::string& mine = table.design.cells[i].group;
    if (i == 0 || mine != group) {
      blocks.push_back({mine, {{}}, {""}});
      for (const TextColumn& column : columns) blocks.back().rows[0].push_back(column.title);
      group = mine;
    }
    TextBlock& block = blocks.back();
    block.rows.emplace_back();
    for (const TextColumn& column : columns) block.rows.back().push_back(column.cells[i]);
    const std::string& refusal = table.rows[i].refusal;
    block.remarks.push_back(with_remarks && !refusal.empty() ? remark_of(table, refusal) : "");
  }
}

/// Returns the smallest effect that a comparison would have found, such as "140%".
std::string size_text(const SweepMetric& metric, const Comparison& comparison) {
  const double effect = detectable_effect(comparison);
  if (!comparison.difference) return fmt::format("{:.{}f}%", 100 * effect, effect < 0.1 ? 1 : 0);
  return metric.is_share ? fmt::format("{:.2f} percentage points", 100 * effect)
                         : fmt::format("{:.3g}", effect);
}

/// Returns why a row is as its reference in every block: runs that compute the same, or figures
/// that do not vary at all, such as accuracies at chance level.
std::string identical_text(const SweepTable& table, std::size_t row, const SweepMetric& metric) {
  const std::vector<SweepRecord>& runs = table.runs[row];
  const double first = runs.front().figure(metric.name);
  const bool constant = std::all_of(runs.begin(), runs.end(), [&](const SweepRecord& run) {
    return run.figure(metric.name) == first;
  });
  if (!constant)
    return "identical runs: in each block it computes what its reference does, so it tests nothing";
  return metric.is_share ? fmt::format(
                               "{} in every run: accuracy is at chance, or the runs are identical; "
                               "that shows no equivalence",
                               number(column_of(metric.name), first))
                         : "the same figure in every run: that shows no equivalence";
}

/// Explains verdicts, and names the rows that are too noisy for one.
void add_verdict_notes(const SweepTable& table, std::vector<std::string>& notes) {
  const auto metrics = table.metrics();
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    const bool differences = by_differences(table.runs, metrics[m]);
    const double margin = margin_of(table.rules, metrics[m], differences);
    if (!differences)
      notes.push_back(
          fmt::format("{}: equivalent: 90% interval within {:.3f} .. {:.3f} "
                      "(sweep.margin={:g})",
                      metrics[m].name, 1 / (1 + margin), 1 + margin, margin));
    else if (margin > 0)
      notes.push_back(
          fmt::format("{}: equivalent: 90% interval within {:.2f} percentage points "
                      "(sweep.share_margin={:g})",
                      metrics[m].name, 100 * margin, margin));
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Comparison& comparison = table.comparison(i, m);
      if (comparison.verdict == Verdict::identical)
        notes.push_back(fmt::format("{} of {}: {}", metrics[m].name, row_title(table, i),
                                    identical_text(table, i, metrics[m])));
      if (comparison.verdict != Verdict::inconclusive) continue;
      notes.push_back(fmt::format("{}{}: too noisy: only differences above {} would show",
                                  metrics.size() > 1 ? metrics[m].name + " of " : "",
                                  row_title(table, i), size_text(metrics[m], comparison)));
    }
  }
}

}  // namespace

TerminalTable terminal_table(const SweepTable& table, std::size_t width, bool wide) {
  TerminalTable result;
  auto labels = label_columns(table, !wide);
  if (!wide) labels = numbered(table, labels, width, result.legend);
  auto values = value_columns(table, !wide, true);
  if (wide || table.design.figures.empty()) {
    values.insert(values.begin(), labels.begin(), labels.end());
    if (!wide) result.left_out = fit(values, width);
    append_blocks(table, values, true, result.blocks);
    return result;
  }
  const auto tables = wrapped(labels, values, width);
  std::vector<std::vector<TextBlock>> parts(tables.size());  // each with a block per group
  for (std::size_t i = 0; i < tables.size(); ++i) append_blocks(table, tables[i], i == 0, parts[i]);
  for (std::size_t group = 0; group < parts[0].size(); ++group)
    for (std::size_t i = 0; i < parts.size(); ++i) {
      TextBlock& block = parts[i][group];
      if (i > 0 && !block.heading.empty()) block.heading += " (continued)";
      result.blocks.push_back(std::move(block));
    }
  return result;
}

TextRows text_rows(const SweepTable& table, bool judged) {
  auto columns = label_columns(table, false);
  for (TextColumn& column : value_columns(table, false, judged))
    columns.push_back(std::move(column));
  TextRows rows(table.rows.size() + 1);
  for (const TextColumn& column : columns) {
    rows[0].push_back(column.title);
    for (std::size_t i = 0; i < column.cells.size(); ++i) rows[i + 1].push_back(column.cells[i]);
  }
  return rows;
}

std::vector<std::string> text_notes(const SweepTable& table) {
  std::vector<std::string> notes = table.design.notes;
  const std::size_t n = table.repeats();
  if (n < 2) {
    notes.emplace_back(
        "one run per row: no interval, so small differences mean nothing (--repeats N)");
  } else {
    notes.push_back(fmt::format(
        "geometric means of {} runs, arithmetic ones of accuracies and utilisations, with 95% "
        "intervals ({}); ratios and differences to the first row within blocks, with simultaneous "
        "intervals{}",
        n, n >= kRepeatsForBootstrap ? "bootstrap-t" : "t",
        table.others.empty() ? "" : ", each metric by itself"));
    for (const SweepMetric& metric : table.metrics())
      if (table.rules.folds > 0 && !metric.is_speed)
        notes.push_back(
            fmt::format("{}: by the corrected resampled t-test, as {} folds share "
                        "their training samples",
                        metric.name, table.rules.folds));
    if (n < kRepeatsForVerdict)
      notes.push_back(fmt::format("fewer than {} repeats: no verdict", kRepeatsForVerdict));
    else
      add_verdict_notes(table, notes);
  }
  for (const Confounder& one : table.confounders)
    notes.push_back("warning: " + remark_on(one, table.design));
  for (const auto& warning : table.warnings) notes.push_back("warning: " + warning);
  return notes;
}

}  // namespace millrace::study
