// The design of a sweep: which combinations of keys it has, and in which order they run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::study {

/// One key and the values it is tried with.
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
};

/// Splits key=a,b,c at the commas outside brackets; throws UsageError for an empty value.
SweepAxis parse_axis(const std::string& text);

/// A combination: the overrides key=value that it differs by, and the words that name its row.
struct SweepCell {
  std::vector<std::string> overrides;
  std::vector<std::string> labels;
};

/// The combinations, the first of which all others are compared with, and the names of the columns
/// that tell them apart.
struct SweepDesign {
  std::vector<std::string> columns;
  std::vector<SweepCell> cells;
};

/// Every combination, the first axis slowest. Axes of one value are in no column.
SweepDesign grid_design(const std::vector<SweepAxis>& axes);
/// The first value of each axis together, then the second of each ...: axes of one value go with
/// all. Throws UsageError where axes differ in length.
SweepDesign paired_design(const std::vector<SweepAxis>& axes);
/// One combination a text "key=value key=value ..."; an empty one is the recipe as it is. `axes`
/// go with all and have one value each, else UsageError.
SweepDesign list_design(const std::vector<SweepAxis>& axes, const std::vector<std::string>& cells);

/// What the words behind `millrace sweep` ask for: at most one recipe, then keys.
struct SweepWords {
  std::string recipe;  ///< empty: none
  SweepDesign design;
};
/// `kind`: grid or paired; `cells` make it a list. Throws UsageError.
SweepWords read_words(const std::vector<std::string>& words, const std::vector<std::string>& cells,
                      const std::string& kind);

/// Blocks: every cell once a repeat, each repeat in its own random order, so that a drift of the
/// machine meets all cells alike. Same seed, same order; more repeats only add blocks.
struct SweepRun {
  std::size_t cell;
  std::uint64_t repeat;
};
std::vector<SweepRun> interleaved(std::size_t cells, std::uint64_t repeats, std::uint64_t seed);

}  // namespace millrace::study
