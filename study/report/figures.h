// Tables and figures that all reports share.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "measure/quantiles.h"
#include "study/report/report.h"

namespace millrace::study {

// Table of the keys in which several recipes differ.

/// Keys and values (recipe/recipe_file.h).
using ConfigValues = std::vector<std::pair<std::string, std::string>>;

/// Reads a run's config.toml. Returns nothing if there is no such file. Throws DataError if it is
/// not TOML.
ConfigValues config_at(const std::filesystem::path& file);

/// A column: its heading and its values.
struct ConfigColumn {
  std::string name;
  ConfigValues values;
};

/// Returns a row for each key whose value is not the same in all columns, in the order of the first
/// column that has it. Missing values are "-". Leaves out `recipe`, which is only a name.
ReportTable config_table(const std::vector<ConfigColumn>& columns);

// Builders of figures, shared by all reports.

using JsonLines = std::vector<nlohmann::ordered_json>;

/// Moves `figures` to the end of `to`.
void append(std::vector<Figure>& to, std::vector<Figure> figures);

/// Removes series that are 0 or NaN everywhere. Returns nothing if none is left.
std::vector<Figure> shown(Figure figure);

/// Returns the value of series `name` at a category's index.
using BarValue = std::function<double(const std::string& name, std::size_t category)>;

/// Returns `figure`, which has its categories, with one series per name, as shown() leaves it.
std::vector<Figure> bars(Figure figure, const std::vector<std::string>& names,
                         const BarValue& value);

/// Returns `figure` with one bar per positive member of `object`, times `factor`, in a series
/// `name`. Returns nothing if there is none.
std::vector<Figure> member_bars(Figure figure, const std::string& name,
                                const nlohmann::ordered_json& object, double factor);

/// Adds a dashed line at `value` across all bars.
void add_bound(Figure& figure, const char* name, double value);

/// Returns how often steps took how long: the share of all steps, in percent, in each class 4%
/// wide, smoothed. x is in ms. Leaves out the longest and the shortest 0.1%. Returns nothing for
/// fewer than 10 steps.
std::vector<Series> distribution(std::string name, const measure::Quantiles& durations);

/// Returns a ridge of `rows`, or nothing if there are none.
std::vector<Figure> ridge(Figure figure, std::vector<Series> rows);

/// One line over the epochs: the value at `key`, times `factor`.
struct Curve {
  const char* name;
  const char* key;
  double factor;
};

/// Returns `figure` with a line per curve. Epochs without the value are skipped, and the line
/// continues. Returns nothing if no epoch has any.
std::vector<Figure> curves(Figure figure, const JsonLines& epochs,
                           std::initializer_list<Curve> wanted);

/// Range of neighbours drawn as one: `count` items in at most `most` groups of nearly equal size.
struct Group {
  std::size_t begin, end;
};
std::vector<Group> groups_of(std::size_t count, std::size_t most);

/// 12345.6 -> "12,346"; "-" if the value is not finite.
std::string with_thousands(double value);

}  // namespace millrace::study
