// The design of an ablation (which combinations, in which order) and the table of what came out.
// Free of processes and files, so that it can be tested as arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

/// One key and the values it is tried with.
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
};

/// Splits key=a,b,c at the commas outside brackets; throws UsageError for an empty value.
SweepAxis parse_axis(const std::string& text);

/// Every combination, the first axis slowest: for each the overrides key=value.
std::vector<std::vector<std::string>> grid(const std::vector<SweepAxis>& axes);

/// Blocks: every cell once a repeat, each repeat in its own random order, so that a drift of the
/// machine meets all cells alike. Same seed, same order.
struct SweepRun {
  std::size_t cell;
  std::uint64_t repeat;
};
std::vector<SweepRun> interleaved(std::size_t cells, std::uint64_t repeats, std::uint64_t seed);

/// One finished run's figures.
struct SweepFigures {
  double load_s_per_step = 0;
  double update_s_per_step = 0;
  double load_s = 0;
  double update_s = 0;
  double wall_s = 0;
  double images_per_s = 0;
  double top1 = 0;     ///< NaN without a model
  double threads = 0;  ///< of LibTorch: they follow the workers unless train.threads is set
};

/// Rows of the table, header first: one a cell, the axes' values in front. With several repeats
/// each figure is a median with its smallest and largest value. `metric` (images_per_s, wall_s,
/// load_s or update_s) is compared with the first row, block by block; the ratio is a median.
std::vector<std::vector<std::string>> sweep_table(
    const std::vector<SweepAxis>& axes, const std::vector<std::vector<SweepFigures>>& cells,
    const std::string& metric);

}  // namespace millrace
