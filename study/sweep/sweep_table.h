// From the runs of a sweep to what it says: a row a combination, and what to bear in mind.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "study/analysis/statistics.h"
#include "study/sweep/design.h"
#include "study/sweep/sweep_record.h"

namespace millrace::study {

/// A figure that rows can be compared by.
struct SweepMetric {
  const char* name;
  double SweepFigures::*figure;
  bool more_is_faster;
};
/// images_per_s, wall_s, load_s or update_s; throws UsageError for another name.
SweepMetric sweep_metric(const std::string& name);

/// A row's results.
struct SweepRow {
  std::map<std::string, Interval> figures;  ///< by kFigures' names
  Comparison comparison;                    ///< with the first row; of that one itself empty
};

struct SweepTable {
  SweepDesign design;
  SweepMetric metric;
  double margin = 0;
  std::vector<std::vector<SweepRecord>> runs;  ///< of each cell, by repeat
  std::vector<SweepRow> rows;
  std::vector<std::string> warnings;

  std::size_t repeats() const { return runs.empty() ? 0 : runs[0].size(); }
};

/// ln(cell / first cell) a block, for each cell but the first.
std::vector<std::vector<double>> block_log_ratios(const std::vector<std::vector<SweepRecord>>& runs,
                                                  const SweepMetric& metric);

/// `runs`: every cell's, as many each, by repeat. `confidence`: of the simultaneous intervals.
SweepTable sweep_table(SweepDesign design, std::vector<std::vector<SweepRecord>> runs,
                       const SweepMetric& metric, double margin, double confidence = kConfidence);

/// Cells of text, header first.
std::vector<std::vector<std::string>> text_rows(const SweepTable& table);
/// Lines to stand below: how the intervals were made, then warnings.
std::vector<std::string> text_notes(const SweepTable& table);
/// The parts `cells` and `warnings` of sweep.json.
nlohmann::ordered_json to_json(const SweepTable& table);

}  // namespace millrace::study
