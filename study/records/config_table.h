// Table of the keys in which several recipes differ.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "study/report/report.h"

namespace millrace::study {

/// Keys and values (pipeline/recipe/recipe_values.h).
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

}  // namespace millrace::study
