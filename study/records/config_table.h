// Which keys several recipes differ in.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "study/report/report.h"

namespace millrace::study {

/// Keys and values (pipeline/recipe/recipe_values.h).
using ConfigValues = std::vector<std::pair<std::string, std::string>>;

/// Of a run's config.toml; none where there is no such file. Throws DataError where it is no TOML.
ConfigValues config_at(const std::filesystem::path& file);

/// A column: a name for its head, and what stands below.
struct ConfigColumn {
  std::string name;
  ConfigValues values;
};

/// A row for each key that has not the same value in all columns, in the order of the first column
/// that has it; "-" where a column lacks it. `recipe`, which only names, is left out.
ReportTable config_table(const std::vector<ConfigColumn>& columns);

}  // namespace millrace::study
