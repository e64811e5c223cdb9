// Results of a sweep: one row per combination, compared with a reference row.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "study/analysis/statistics.h"
#include "study/sweep/design.h"
#include "study/sweep/sweep_metric.h"
#include "study/sweep/sweep_record.h"

namespace millrace::study {

/// Differences within these margins count as none.
struct SweepMargins {
  double ratio = 0.03;
  double share = 0.005;  ///< of accuracies and other shares: half a percentage point
};

/// A row's results.
struct SweepRow {
  std::map<std::string, Interval> figures;  ///< by figure_names()
  Comparison comparison;                    ///< of the table's metric; empty for a reference
  std::vector<Comparison> others;           ///< of the table's other metrics
  std::size_t reference = 0;                ///< row that it is compared with; itself: a reference
  std::string refusal;                      ///< why it was not run; empty: it was
};

struct SweepTable {
  SweepDesign design;
  SweepMetric metric;               ///< decides on repeats and verdicts
  std::vector<SweepMetric> others;  ///< further metrics
  SweepMargins margins;
  std::vector<std::vector<SweepRecord>> runs;  ///< runs of each cell, by repeat
  std::vector<SweepRow> rows;
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
double margin_of(const SweepMargins& margins, const SweepMetric& metric, bool differences);

/// Computes the table. `runs` holds the same number of runs for every cell, by repeat, or none for
/// a cell that could not be run. `confidence` applies to the simultaneous intervals within a group
/// and metric. `refusals` holds the reason of each cell without runs; may be empty.
SweepTable sweep_table(SweepDesign design, std::vector<std::vector<SweepRecord>> runs,
                       std::vector<SweepMetric> metrics, SweepMargins margins,
                       double confidence = kConfidence, std::vector<std::string> refusals = {});

/// Returns the parts `cells` and `warnings` of sweep.json.
nlohmann::ordered_json to_json(const SweepTable& table);

}  // namespace millrace::study
