// Compares configurations key by key.
#include "study/records/config_table.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "pipeline/recipe/recipe_values.h"

namespace millrace::study {
namespace {

std::string value_in(const ConfigColumn& column, const std::string& key) {
  for (const auto& [name, value] : column.values)
    if (name == key) return value;
  return "-";
}

}  // namespace

ConfigValues config_at(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return {};
  return pipeline::recipe_values({std::istreambuf_iterator<char>(in), {}}, file.string());
}

ReportTable config_table(const std::vector<ConfigColumn>& columns) {
  ReportTable table{.id = "configuration", .title = "Configuration", .header = {"key"}};
  for (const ConfigColumn& column : columns) table.header.push_back(column.name);
  std::set<std::string> seen{"recipe"};
  for (const ConfigColumn& column : columns) {
    for (const auto& [key, value] : column.values) {
      if (!seen.insert(key).second) continue;
      std::vector<std::string> row{key};
      for (const ConfigColumn& other : columns) row.push_back(value_in(other, key));
      if (std::any_of(row.begin() + 2, row.end(), [&](const auto& v) { return v != row[1]; }))
        table.rows.push_back(std::move(row));
    }
  }
  table.caption = table.rows.empty() ? "No key differs." : "Keys that differ.";
  return table;
}

}  // namespace millrace::study
