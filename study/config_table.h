// Which keys several recipes differ in.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "study/report.h"

namespace millrace {

/// A column: a name for its head, and keys with values (pipeline/recipe_values.h).
struct ConfigColumn {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;
};

/// A row for each key that has not the same value in all columns, in the order of the first column
/// that has it; "-" where a column lacks it. `recipe`, which only names, is left out.
ReportTable config_table(const std::vector<ConfigColumn>& columns);

}  // namespace millrace
