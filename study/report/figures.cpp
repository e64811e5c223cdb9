// Builds tables and figures from records.

#include "study/report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/record_file.h"
#include "recipe/recipe_file.h"
#include "study/records/run_files.h"

namespace millrace::study {

// Compares configurations key by key.

namespace {

std::string value_in(const ConfigColumn& column, const std::string& key) {
  for (const auto& [name, value] : column.values)
    if (name == key) return value;
  return "-";
}

}  // namespace

ConfigValues config_at(const std::filesystem::path& file) {
  std::ifstream in = base::open_record(file);
  if (!in) return {};
  return recipe::recipe_values(base::read_record(in, file), file.string());
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

namespace {

// Limits of distributions.
constexpr std::uint64_t kFewestDurations = 10;  ///< durations
constexpr double kPerOctave = 16;               ///< classes
constexpr double kShortest = 1e-7;              ///< seconds; shorter ones count as this long
constexpr long kReach = 3;  ///< classes that the triangular kernel reaches to either side

long class_of(double seconds) {
  return std::lround(kPerOctave * std::log2(std::max(seconds, kShortest) / kShortest));
}

}  // namespace

void append(std::vector<Figure>& to, std::vector<Figure> figures) {
  for (Figure& figure : figures) to.push_back(std::move(figure));
}

std::vector<Figure> shown(Figure figure) {
  std::erase_if(figure.series, [](const Series& series) {
    return std::none_of(series.y.begin(), series.y.end(),
                        [](double y) { return std::isfinite(y) && y != 0; });
  });
  if (figure.series.empty()) return {};
  return {std::move(figure)};
}

std::vector<Figure> bars(Figure figure, const std::vector<std::string>& names,
                         const BarValue& value) {
  for (const std::string& name : names) {
    figure.series.push_back({.name = name});
    for (std::size_t at = 0; at < figure.categories.size(); ++at)
      figure.series.back().y.push_back(value(name, at));
  }
  return shown(std::move(figure));
}

std::vector<Figure> member_bars(Figure figure, const std::string& name,
                                const nlohmann::ordered_json& object, double factor) {
  Series series{.name = name};
  if (object.is_object())
    for (const auto& [member, value] : object.items()) {
      if (!value.is_number() || value.get<double>() <= 0) continue;
      figure.categories.push_back(member);
      series.y.push_back(factor * value.get<double>());
    }
  figure.series.push_back(std::move(series));
  return shown(std::move(figure));
}

void add_bound(Figure& figure, const char* name, double value) {
  figure.series.push_back(
      {.name = name, .y = std::vector<double>(figure.categories.size(), value), .bound = true});
}

std::vector<Series> distribution(std::string name, const measure::Quantiles& durations) {
  if (durations.count() < kFewestDurations) return {};
  const long first = class_of(durations.at(0.001)) - kReach;
  const long last = class_of(durations.at(0.999)) + kReach;
  Series series{.name = std::move(name)};
  for (long at = first; at <= last; ++at)
    series.x.push_back(1e3 * kShortest * std::exp2(static_cast<double>(at) / kPerOctave));
  series.y.resize(series.x.size());
  for (const measure::Quantiles::Class& one : durations.classes()) {
    const long middle = std::clamp(class_of(one.seconds), first, last);
    const double share =
        100 * static_cast<double>(one.count) / static_cast<double>(durations.count());
    for (long at = std::max(first, middle - kReach); at <= std::min(last, middle + kReach); ++at)
      series.y[static_cast<std::size_t>(at - first)] +=
          share * static_cast<double>(kReach + 1 - std::abs(at - middle)) /
          ((kReach + 1) * (kReach + 1));
  }
  return {std::move(series)};
}

std::vector<Figure> ridge(Figure figure, std::vector<Series> rows) {
  if (rows.empty()) return {};
  figure.kind = FigureKind::ridge;
  figure.x_label = "ms";
  figure.y_label = "% of the steps";
  figure.series = std::move(rows);
  return {std::move(figure)};
}

std::vector<Figure> curves(Figure figure, const JsonLines& epochs,
                           std::initializer_list<Curve> wanted) {
  figure.kind = FigureKind::line;
  figure.x_label = "epoch";
  for (const Curve& curve : wanted) {
    Series series{.name = curve.name};
    for (const auto& epoch : epochs) {
      const double value = curve.factor * number_at(epoch, {curve.key});
      if (!std::isfinite(value)) continue;
      series.x.push_back(number_at(epoch, {"epoch"}));
      series.y.push_back(value);
    }
    if (!series.y.empty()) figure.series.push_back(std::move(series));
  }
  if (figure.series.empty()) return {};
  return {std::move(figure)};
}

std::vector<Group> groups_of(std::size_t count, std::size_t most) {
  std::vector<Group> groups;
  const std::size_t width = (count + most - 1) / std::max<std::size_t>(1, most);
  for (std::size_t at = 0; at < count; at += width)
    groups.push_back({at, std::min(count, at + width)});
  return groups;
}

std::string with_thousands(double value) {
  if (!std::isfinite(value)) return "-";
  std::string text = fmt::format("{:.0f}", value);
  for (std::size_t at = text.size(); at > 3 && text[at - 4] != '-'; at -= 3)
    text.insert(at - 3, 1, ',');
  return text;
}

}  // namespace millrace::study
