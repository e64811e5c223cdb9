// Design of a sweep: which combinations of keys it runs, and in which order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace millrace::study {

/// One key and its values.
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
};

/// Splits key=a,b,c at the commas outside brackets. Throws UsageError for an empty value.
SweepAxis parse_axis(const std::string& text);

/// A published figure: a number in the unit of summary.json, or a text such as a range.
using SourceFigure = std::variant<double, std::string>;

/// A combination: the overrides key=value that distinguish it, and its row's labels.
struct SweepCell {
  std::vector<std::string> overrides;  ///< may begin with a recipe
  std::vector<std::string> labels;
  std::string group{};                           ///< rows are compared within their group
  std::map<std::string, SourceFigure> source{};  ///< by figure
};

/// The combinations, and the names of the columns that distinguish them. The first row of each
/// group that could be run is the group's reference.
struct SweepDesign {
  std::vector<std::string> columns;
  std::vector<SweepCell> cells;
  std::string title{};                 ///< of a study; empty for other sweeps
  std::vector<std::string> figures{};  ///< columns that a study's table shows; empty: a selection
  std::vector<std::string> notes{};
  std::string command{};  ///< of a sweep over any program; empty for runs of millrace
};

/// Returns the shortest names that tell the keys apart: loader.workers becomes workers. Parameters
/// of augmentations keep the name of their op: random_affine.degrees.
std::vector<std::string> short_names(const std::vector<std::string>& keys);

/// Returns every combination; the first axis varies slowest. Axes of one value have no column.
SweepDesign grid_design(const std::vector<SweepAxis>& axes);
/// Combines the first values of all axes, then the second ones, and so on; axes of one value go
/// with all. Throws UsageError if axes differ in length.
SweepDesign paired_design(const std::vector<SweepAxis>& axes);
/// Splits "key=value key=value" at the spaces outside brackets. Throws UsageError for a word that
/// is no key=value; the first one may be a recipe if `may_name_recipe`.
std::vector<std::string> cell_words(const std::string& text, const std::string& where,
                                    bool may_name_recipe = false);
/// Returns one combination per text "key=value key=value ..."; an empty text is the unchanged
/// recipe. `axes` apply to all combinations and must have one value each, otherwise throws
/// UsageError.
SweepDesign list_design(const std::vector<SweepAxis>& axes, const std::vector<std::string>& cells);

/// Arguments of `millrace sweep`: at most one recipe, then keys.
struct SweepWords {
  std::string recipe;  ///< empty: none
  SweepDesign design;
};
/// Parses the arguments. `kind` is grid or paired; `cells` make it a list. Throws UsageError.
SweepWords read_words(const std::vector<std::string>& words, const std::vector<std::string>& cells,
                      const std::string& kind);

/// Orders the runs in blocks: each repeat runs every cell once in its own random order, so that a
/// drift of the machine affects all cells alike. The order depends on the seed only, and more
/// repeats only append blocks.
struct SweepRun {
  std::size_t cell;
  std::uint64_t repeat;
};
std::vector<SweepRun> interleaved(std::size_t cells, std::uint64_t repeats, std::uint64_t seed);

}  // namespace millrace::study
