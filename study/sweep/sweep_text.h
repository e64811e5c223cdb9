// A sweep's table as text: for a terminal of some width, in full for reports, and as CSV.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "study/sweep/sweep_table.h"

namespace millrace::study {

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
