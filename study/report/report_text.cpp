// Writes Markdown, CSV and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "study/report/report.h"

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

constexpr std::size_t kRowsInFull = 24;  ///< limit for the tables of a figure's values in Markdown

std::string full_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "";
}
/// Formats a number for people.
std::string short_number(double value) {
  if (!std::isfinite(value)) return "-";
  return fmt::format("{:.4g}", value).find('e') == std::string::npos ? fmt::format("{:.4g}", value)
                                                                     : fmt::format("{:.0f}", value);
}

double value_at(const std::vector<double>& values, std::size_t i) {
  return i < values.size() ? values[i] : NAN;
}

bool has_categories(const Figure& figure) {
  return figure.kind == FigureKind::bar || figure.kind == FigureKind::stacked_bar;
}

bool same_x(const Figure& figure) {
  return std::all_of(figure.series.begin(), figure.series.end(),
                     [&](const Series& s) { return s.x == figure.series[0].x; });
}

/// Returns a figure as table rows, formatting each value with `text`. Intervals have their own
/// columns or, with `brackets`, follow the value.
std::vector<Row> rows_of(const Figure& figure, const auto& text, bool brackets) {
  std::vector<Row> rows;
  if (figure.kind == FigureKind::matrix) {
    rows.push_back({figure.y_label + " \\ " + figure.x_label});
    rows[0].insert(rows[0].end(), figure.categories.begin(), figure.categories.end());
    for (const Series& series : figure.series) {
      rows.push_back({series.name});
      for (std::size_t i = 0; i < figure.categories.size(); ++i)
        rows.back().push_back(text(value_at(series.y, i)));
    }
    return rows;
  }
  const auto value = [&](const Series& series, std::size_t i, Row& row) {
    row.push_back(text(value_at(series.y, i)));
    if (series.low.empty()) return;
    const std::string low = text(value_at(series.low, i));
    const std::string high = text(value_at(series.high, i));
    if (!brackets) {
      row.insert(row.end(), {low, high});
    } else if (std::isfinite(value_at(series.low, i))) {
      row.back() += " [" + low + " .. " + high + "]";
    }
  };
  const auto title = [&](const Series& series, const std::string& name, Row& row) {
    row.push_back(name);
    if (!series.low.empty() && !brackets) row.insert(row.end(), {name + " low", name + " high"});
  };
  if (!has_categories(figure) && !same_x(figure)) {
    rows.push_back({"series", figure.x_label, figure.y_label});
    const bool any = std::any_of(figure.series.begin(), figure.series.end(),
                                 [](const Series& s) { return !s.low.empty(); });
    if (any && !brackets) rows[0].insert(rows[0].end(), {"low", "high"});
    for (const Series& series : figure.series)
      for (std::size_t i = 0; i < series.y.size(); ++i) {
        Row row{series.name, text(value_at(series.x, i))};
        value(series, i, row);
        row.resize(rows[0].size());
        rows.push_back(std::move(row));
      }
    return rows;
  }
  rows.push_back({figure.x_label});
  for (const Series& series : figure.series) title(series, series.name, rows[0]);
  const std::size_t count = has_categories(figure)  ? figure.categories.size()
                            : figure.series.empty() ? 0
                                                    : figure.series[0].x.size();
  for (std::size_t i = 0; i < count; ++i) {
    Row row{has_categories(figure) ? figure.categories[i] : text(figure.series[0].x[i])};
    for (const Series& series : figure.series) value(series, i, row);
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Summarises each series, for figures of too many points.
std::vector<Row> range_rows(const Figure& figure) {
  std::vector<Row> rows{{figure.y_label, "points", "first", "least", "mean", "most", "last"}};
  for (const Series& series : figure.series) {
    std::vector<double> values;
    for (const double y : series.y)
      if (std::isfinite(y)) values.push_back(y);
    if (values.empty()) continue;
    double sum = 0;
    for (const double y : values) sum += y;
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    rows.push_back({series.name, std::to_string(values.size()), short_number(values.front()),
                    short_number(*least), short_number(sum / static_cast<double>(values.size())),
                    short_number(*most), short_number(values.back())});
  }
  return rows;
}

std::string markdown_table(const std::vector<Row>& rows) {
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const std::string& cell : rows[r]) text += "| " + markdown_escaped(cell) + " ";
    text += "|\n";
    if (r > 0) continue;
    for (std::size_t c = 0; c < rows[0].size(); ++c) text += "| --- ";
    text += "|\n";
  }
  return text;
}

void head(std::string& text, const std::string& title, const std::string& caption) {
  text += "\n## " + markdown_escaped(title) + "\n\n";
  if (!caption.empty()) text += markdown_escaped(caption) + "\n\n";
}

std::string_view name_of(FigureKind kind) {
  switch (kind) {
    case FigureKind::line:
      return "line";
    case FigureKind::stacked_area:
      return "stacked_area";
    case FigureKind::bar:
      return "bar";
    case FigureKind::stacked_bar:
      return "stacked_bar";
    case FigureKind::matrix:
      return "matrix";
    case FigureKind::ridge:
      return "ridge";
  }
  return "";
}

Json numbers(const std::vector<double>& values) {
  Json all = Json::array();
  for (const double value : values)
    all.push_back(std::isfinite(value) ? Json(value) : Json(nullptr));
  return all;
}

}  // namespace

std::string to_markdown(const Report& report) {
  std::string text = "# " + markdown_escaped(report.title) + "\n";
  if (!report.verdict.empty()) text += "\n**" + markdown_escaped(report.verdict) + "**\n";
  if (!report.facts.empty()) {
    std::vector<Row> rows{{"", ""}};
    for (const auto& [name, value] : report.facts) rows.push_back({name, value});
    text += "\n" + markdown_table(rows);
  }
  if (!report.notes.empty()) text += '\n';
  for (const std::string& note : report.notes) text += "- " + markdown_escaped(note) + "\n";
  for (const Figure& figure : report.figures) {
    head(text, figure.title, figure.caption);
    const auto rows = rows_of(figure, short_number, true);
    const bool all = rows.size() <= kRowsInFull + 1 || figure.kind == FigureKind::matrix;
    text += markdown_table(all ? rows : range_rows(figure));
  }
  for (const ReportTable& table : report.tables) {
    head(text, table.title, table.caption);
    std::vector<Row> rows{table.header};
    rows.insert(rows.end(), table.rows.begin(), table.rows.end());
    text += markdown_table(rows);
  }
  return text;
}

std::string csv(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      text += csv_field(row[i]);
    }
    text += '\n';
  }
  return text;
}

std::string to_csv(const Figure& figure) { return csv(rows_of(figure, full_number, false)); }

std::string to_csv(const ReportTable& table) {
  if (!table.csv.empty()) return csv(table.csv);
  std::vector<Row> rows{table.header};
  rows.insert(rows.end(), table.rows.begin(), table.rows.end());
  return csv(rows);
}

Json to_json(const Figure& figure) {
  Json json{{"id", figure.id},           {"title", figure.title},
            {"caption", figure.caption}, {"kind", name_of(figure.kind)},
            {"x_label", figure.x_label}, {"y_label", figure.y_label}};
  json["categories"] = figure.categories;
  json["logarithmic"] = figure.logarithmic;
  json["marked"] = figure.marked;
  json["series"] = Json::array();
  for (const Series& series : figure.series) {
    Json one{{"name", series.name},        {"x", numbers(series.x)},       {"y", numbers(series.y)},
             {"low", numbers(series.low)}, {"high", numbers(series.high)}, {"bound", series.bound}};
    if (series.line) one["line"] = true;
    if (!series.run.empty()) one["run"] = series.run;
    json["series"].push_back(std::move(one));
  }
  return json;
}

Json to_json(const Report& report) {
  Json json{{"title", report.title}, {"verdict", report.verdict}};
  json["facts"] = Json::array();
  for (const auto& [name, value] : report.facts)
    json["facts"].push_back({{"name", name}, {"value", value}});
  json["figures"] = Json::array();
  for (const Figure& figure : report.figures) json["figures"].push_back(to_json(figure));
  json["tables"] = Json::array();
  for (const ReportTable& table : report.tables)
    json["tables"].push_back({{"id", table.id},
                              {"title", table.title},
                              {"caption", table.caption},
                              {"header", table.header},
                              {"rows", table.rows}});
  json["images"] = Json::array();
  for (const ReportImage& image : report.images)
    json["images"].push_back({{"id", image.id},
                              {"title", image.title},
                              {"caption", image.caption},
                              {"png_base64", base64(image.png)}});
  json["notes"] = report.notes;
  return json;
}

}  // namespace millrace::study
