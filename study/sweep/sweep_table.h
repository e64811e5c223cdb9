// Results of a sweep: one row per combination, and the notes needed to read them.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "study/analysis/statistics.h"
#include "study/sweep/design.h"
#include "study/sweep/sweep_record.h"

namespace millrace::study {

/// A figure by which rows can be compared.
struct SweepMetric {
  const char* name;
  double SweepFigures::*figure;
  bool more_is_faster;
};
/// Returns images_per_s, wall_s, load_s or update_s. Throws UsageError for another name.
SweepMetric sweep_metric(const std::string& name);

/// A row's results.
struct SweepRow {
  std::map<std::string, Interval> figures;  ///< keyed by kFigures' names
  Comparison comparison;                    ///< with the first row; empty for the first row itself
};

struct SweepTable {
  SweepDesign design;
  SweepMetric metric;
  double margin = 0;
  std::vector<std::vector<SweepRecord>> runs;  ///< runs of each cell, by repeat
  std::vector<SweepRow> rows;
  std::vector<std::string> warnings;

  std::size_t repeats() const { return runs.empty() ? 0 : runs[0].size(); }
};

/// Returns ln(cell / first cell) per block, for each cell but the first.
std::vector<std::vector<double>> block_log_ratios(const std::vector<std::vector<SweepRecord>>& runs,
                                                  const SweepMetric& metric);

/// Computes the table. `runs` holds the same number of runs for every cell, by repeat. `confidence`
/// applies to the simultaneous intervals.
SweepTable sweep_table(SweepDesign design, std::vector<std::vector<SweepRecord>> runs,
                       const SweepMetric& metric, double margin, double confidence = kConfidence);

/// Returns the table's cells as text, header first.
std::vector<std::vector<std::string>> text_rows(const SweepTable& table);
/// Returns notes for below the table: how the intervals were made, then warnings.
std::vector<std::string> text_notes(const SweepTable& table);
/// Returns the parts `cells` and `warnings` of sweep.json.
nlohmann::ordered_json to_json(const SweepTable& table);

}  // namespace millrace::study
