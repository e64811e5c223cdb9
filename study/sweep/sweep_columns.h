// Columns of a sweep's table: which figures there are, and how each is shown.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "study/sweep/sweep_table.h"

namespace millrace::study {

/// Presentation of a figure: its column's title, its unit as a factor, its digits.
struct FigureColumn {
  const char* figure;
  const char* title;
  const char* brief;  ///< title in a narrow table
  double factor;
  int digits;
  const char* unit;
  int priority;  ///< in a narrow table: small numbers stay longest
};

inline constexpr int kAlways = 0, kMetric = 1, kLeast = 98, kFirstToGo = 99;
/// Returns the columns of a full table, in their order. The first kFirstColumns are also the first
/// columns of its CSV.
std::span<const FigureColumn> figure_columns();
inline constexpr std::size_t kFirstColumns = 7;

/// Returns the presentation of any figure. `name` must outlive it.
FigureColumn column_of(const std::string& name);

/// Returns the title of a metric's comparisons: "images_per_s ratio".
std::string effect_title(const SweepTable& table, const SweepMetric& metric);

/// Returns whether a row has the figure.
bool has_values(const SweepTable& table, const std::string& figure);
/// Returns whether the rows are runs of any program, which have few of the figures.
bool is_command(const SweepTable& table);
/// Returns whether the study's source has published the figure of a row.
bool has_source(const SweepTable& table, const std::string& figure);

/// Names a row by its labels: "workers=1, batch=32".
std::string row_title(const SweepTable& table, std::size_t row);

/// Returns LibTorch's threads of each row; "-" where nothing ran.
std::vector<std::string> threads_of_rows(const SweepTable& table);

}  // namespace millrace::study
