// Results of a sweep: figures by name, one row per combination, from its directory, and as text.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "predict/interval.h"
#include "study/analysis/statistics.h"
#include "study/sweep/design.h"
#include "study/sweep/sweep_record.h"

namespace millrace::study {

// Names of a run's figures, by which a sweep can compare its rows.

/// A figure by which rows are compared.
struct SweepMetric {
  std::string name;  ///< path in summary.json, parts separated by dots, or a derived figure
  bool is_speed =
      true;  ///< a time or a rate: its verdict is faster or slower, else higher or lower
  bool more_is_faster = false;
  bool is_share = false;  ///< between 0 and 1, such as an accuracy: compared by differences
};

/// Returns the metric of that name. Throws UsageError if summary.json has no number that could be
/// meant.
SweepMetric sweep_metric(const std::string& name);
/// Returns the metrics of a list separated by commas. Throws UsageError, also for a repeated name.
std::vector<SweepMetric> sweep_metrics(const std::string& names);

/// Returns whether the figure lies between 0 and 1 and is shown as a percentage.
bool is_share(const std::string& name);

// Results of a sweep: one row per combination, compared with a reference row.

/// Rules of a comparison. Differences within the margins count as none.
struct ComparisonRules {
  double ratio = 0.03;      ///< margin of ratios
  double share = 0.005;     ///< margin of accuracies and other shares: half a percentage point
  std::uint64_t folds = 0;  ///< of sweep.folds; 0: blocks are independent
};

/// A row's results.
struct SweepRow {
  std::map<std::string, predict::Interval> figures;  ///< by figure_names()
  Comparison comparison;           ///< of the table's metric; empty for a reference
  std::vector<Comparison> others;  ///< of the table's other metrics
  std::size_t reference = 0;       ///< row that it is compared with; itself: a reference
  std::string refusal;             ///< why it was not run; empty: it was
  /// Updates take another time than the reference's, though all keys are of the loader and nothing
  /// else is known to differ.
  bool updates_differ = false;
};

struct SweepTable {
  SweepDesign design;
  SweepMetric metric;               ///< decides on repeats and verdicts
  std::vector<SweepMetric> others;  ///< further metrics
  ComparisonRules rules;
  std::vector<std::vector<SweepRecord>> runs;  ///< runs of each cell, by repeat
  std::vector<SweepRow> rows;
  std::vector<Confounder> confounders;
  std::vector<std::string> warnings;

  std::size_t repeats() const;
  bool is_reference(std::size_t row) const { return rows[row].reference == row; }
  /// Returns all metrics, the table's own first.
  std::vector<SweepMetric> metrics() const;
  /// Returns a row's comparison by the metric of that index in metrics().
  const Comparison& comparison(std::size_t row, std::size_t metric) const;
};

/// Returns the figures that a table of that design and these metrics has: kFigures, kMoreFigures,
/// then others.
std::vector<std::string> figure_names(const SweepDesign& design,
                                      const std::vector<SweepMetric>& metrics);

/// Returns for each cell the first cell of its group that has runs; itself if there is none.
std::vector<std::size_t> references(const SweepDesign& design,
                                    const std::vector<std::vector<SweepRecord>>& runs);

/// Returns whether rows are compared by differences: shares are, and figures that are not positive.
bool by_differences(const std::vector<std::vector<SweepRecord>>& runs, const SweepMetric& metric);

/// Returns ln(cell / reference), or cell - reference, per block, for each cell that has runs and is
/// not a reference.
std::vector<std::vector<double>> block_effects(const SweepDesign& design,
                                               const std::vector<std::vector<SweepRecord>>& runs,
                                               const SweepMetric& metric);

/// Returns the margin that applies to the metric; 0 for differences of figures other than shares,
/// which are never called equivalent.
double margin_of(const ComparisonRules& rules, const SweepMetric& metric, bool differences);

/// Computes the table. `runs` holds the same number of runs for every cell, by repeat, or none for
/// a cell that could not be run. `confidence` applies to the simultaneous intervals within a group
/// and metric. `refusals` holds the reason of each cell without runs; may be empty.
SweepTable sweep_table(SweepDesign design, std::vector<std::vector<SweepRecord>> runs,
                       std::vector<SweepMetric> metrics, ComparisonRules rules,
                       double confidence = kConfidence, std::vector<std::string> refusals = {});

/// Returns the parts `cells` and `warnings` of sweep.json.
nlohmann::ordered_json to_json(const SweepTable& table);

// Reads a sweep's directory: the table that it printed, or what exists of it so far.

struct SweepFiles {
  /// From sweep.json or, if there is none yet, from the repeats in which every combination has
  /// finished. Empty if there is no such repeat.
  std::optional<SweepTable> table;
  bool finished = false;  ///< sweep.json exists
  std::string recipe;
  /// While unfinished: all finished runs of the newest program, by name.
  std::vector<SweepRecord> runs;
  std::size_t begun = 0;  ///< runs that have a record, finished or not
};

/// Reads the directory. Throws DataError if a file is damaged.
SweepFiles read_sweep(const std::filesystem::path& path);

// A sweep's table as text: for a terminal of some width, in full for reports, and as CSV.

using TextRows = std::vector<std::vector<std::string>>;  ///< header first

/// A table as a terminal shows it. A sweep has one per group, a study with many columns several.
struct TextBlock {
  std::string heading;  ///< the group; may be empty
  TextRows rows;
  std::vector<std::string> remarks;  ///< shown below the row of the same index; may be empty
};

struct TerminalTable {
  std::vector<TextBlock> blocks;
  std::vector<std::string> legend;    ///< rows whose labels are too long for a column
  std::vector<std::string> left_out;  ///< titles of columns that did not fit
};

/// Returns the columns that fit into `width` characters, the most telling ones first: row, metrics,
/// comparisons, load and update, accuracy. The columns of a study (SweepDesign::figures) are all
/// there, in several blocks if necessary. `wide`: all columns, whatever the width.
TerminalTable terminal_table(const SweepTable& table, std::size_t width, bool wide);

/// Returns all columns with their intervals, for reports. `judged`: with verdicts, if there are
/// enough repeats.
TextRows text_rows(const SweepTable& table, bool judged = true);

/// Returns notes for below the table: how the intervals were made, which rows are too noisy, then
/// warnings.
std::vector<std::string> text_notes(const SweepTable& table);

/// Returns the table for CSV: plain numbers, with NAME low and NAME high as columns of their own,
/// and NAME source where a study has published figures.
TextRows csv_table(const SweepTable& table);
/// Returns one row per run for CSV: labels, name, repeat, seed, every figure, disturbances.
TextRows csv_runs(const SweepTable& table);

}  // namespace millrace::study
