// Writes the HTML page: head, tables, and chart data for Chart.js.
#include "study/report/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "study/records/run_directory.h"
#include "study/report/report_escape.h"
#include "study/report/report_page.h"
#include "study/report/report_text.h"

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;

/// The content security policy blocks styles, scripts, fonts and pictures from elsewhere, whatever
/// the texts contain.
constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
)";
constexpr std::size_t kSectionsForContents = 6;
constexpr std::size_t kWordsFrom = 28;  ///< tables with longer cells wrap instead of scrolling

std::string paragraph(const std::string& caption) {
  return caption.empty() ? "" : "<p class=\"caption\">" + html_escaped(caption) + "</p>\n";
}

std::string spoken_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.4g}", value) : "-";
}

/// Returns a description of the figure for screen readers.
std::string spoken(const Figure& figure) {
  std::string text = figure.title + ". " + figure.caption;
  for (const Series& series : figure.series) {
    std::vector<double> values;
    for (const double y : series.y)
      if (std::isfinite(y)) values.push_back(y);
    if (values.empty()) continue;
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    text += fmt::format(" {}: {} to {}, last {}.", series.name, spoken_number(*least),
                        spoken_number(*most), spoken_number(values.back()));
  }
  return text + " " + figure.y_label + (figure.x_label.empty() ? "" : " by " + figure.x_label);
}

/// Shades each cell by the square root of its share of the row, so that small shares stay visible.
std::string matrix_table(const Figure& figure) {
  std::string html =
      fmt::format("<div class=\"scroll\"><table class=\"matrix\"><thead><tr><th>{} \\ {}</th>",
                  html_escaped(figure.y_label), html_escaped(figure.x_label));
  for (const std::string& name : figure.categories)
    html += "<th scope=\"col\">" + html_escaped(name) + "</th>";
  html += "</tr></thead>\n<tbody>\n";
  for (const Series& series : figure.series) {
    double sum = 0;
    for (const double y : series.y) sum += std::isfinite(y) ? std::abs(y) : 0;
    html += "<tr><th scope=\"row\">" + html_escaped(series.name) + "</th>";
    for (const double y : series.y) {
      const double part = sum > 0 && std::isfinite(y) ? std::sqrt(std::abs(y) / sum) : 0;
      html += fmt::format("<td{} style=\"--part:{:.2f}\">{}</td>",
                          part > 0.6 ? " class=\"strong\"" : "", part,
                          std::isfinite(y) ? fmt::format("{}", y) : "");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string figure_html(const Figure& figure) {
  const bool matrix = figure.kind == FigureKind::matrix;
  const bool wide =
      matrix || figure.kind == FigureKind::stacked_area || figure.categories.size() > 12;
  std::string html = fmt::format(
      "<figure id=\"{0}\"{1}>\n<figcaption><h3>{2}</h3>\n{3}</figcaption>\n", figure.id,
      wide ? " class=\"wide\"" : "", html_escaped(figure.title), paragraph(figure.caption));
  if (matrix)
    html += matrix_table(figure);
  else
    html += fmt::format(
        "<div class=\"plot\"><canvas id=\"canvas-{0}\" role=\"img\" aria-label=\"{1}\"></canvas>"
        "</div>\n<details data-figure=\"{0}\"><summary>numbers</summary></details>\n",
        figure.id, html_escaped(spoken(figure)));
  return html + "</figure>\n";
}

std::string table_html(const ReportTable& table) {
  bool words = false;
  for (const auto& row : table.rows)
    for (std::size_t i = 1; i < row.size(); ++i) words |= row[i].size() > kWordsFrom;
  std::string html = fmt::format(
      "<section class=\"table\" id=\"{}\">\n<h3>{}</h3>\n{}<div class=\"scroll\"><table{}><thead>"
      "<tr>",
      table.id, html_escaped(table.title), paragraph(table.caption),
      words ? " class=\"words\"" : "");
  for (const std::string& cell : table.header)
    html += "<th scope=\"col\">" + html_escaped(cell) + "</th>";
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (const std::string& cell : row) html += "<td>" + html_escaped(cell) + "</td>";
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n</section>\n";
}

std::string image_html(const ReportImage& image) {
  return fmt::format(
      "<figure class=\"wide\" id=\"{}\"><figcaption><h3>{}</h3>\n{}</figcaption>\n"
      "<img alt=\"{}\" src=\"data:image/png;base64,{}\"></figure>\n",
      image.id, html_escaped(image.title), paragraph(image.caption),
      html_escaped(image.title + ". " + image.caption), base64(image.png));
}

std::string contents(const Report& report) {
  if (report.figures.size() + report.tables.size() + report.images.size() < kSectionsForContents)
    return "";
  std::string html = "<nav aria-label=\"contents\">\n";
  const auto link = [&html](const auto& parts) {
    for (const auto& part : parts)
      html += fmt::format("<a href=\"#{}\">{}</a>\n", part.id, html_escaped(part.title));
  };
  link(report.figures);
  link(report.tables);
  link(report.images);
  return html + "</nav>\n";
}

std::string figures_json(const Report& report) {
  Json figures = Json::array();
  for (const Figure& figure : report.figures)
    if (figure.kind != FigureKind::matrix) figures.push_back(to_json(figure));
  return script_json(to_text(figures));
}

}  // namespace

std::string to_html(const Report& report) {
  std::string html = kHead;
  html += fmt::format("<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
                      html_escaped(report.title), kReportCss);
  html += fmt::format("<header>\n<h1>{}</h1>\n", html_escaped(report.title));
  if (!report.verdict.empty())
    html += fmt::format("<p class=\"verdict\">{}</p>\n", html_escaped(report.verdict));
  html += "</header>\n" + contents(report) + "<main>\n";
  if (!report.notes.empty()) {
    html += "<h2>Notes</h2>\n<ul class=\"notes\">\n";
    for (const std::string& note : report.notes) html += "<li>" + html_escaped(note) + "</li>\n";
    html += "</ul>\n";
  }
  if (!report.facts.empty()) {
    html += "<h2>Facts</h2>\n<dl>\n";
    for (const auto& [name, value] : report.facts)
      html += fmt::format("<div{}><dt>{}</dt><dd>{}</dd></div>\n",
                          value.size() > kWordsFrom ? " class=\"long\"" : "", html_escaped(name),
                          html_escaped(value));
    html += "</dl>\n";
  }
  if (!report.figures.empty()) {
    html += "<h2>Figures</h2>\n<noscript><p>Charts need JavaScript, which is switched off.</p>";
    html += "</noscript>\n<div class=\"grid\">\n";
    for (const Figure& figure : report.figures) html += figure_html(figure);
    html += "</div>\n";
  }
  if (!report.tables.empty()) html += "<h2>Tables</h2>\n";
  for (const ReportTable& table : report.tables) html += table_html(table);
  if (!report.images.empty()) html += "<h2>Pictures</h2>\n";
  for (const ReportImage& image : report.images) html += image_html(image);
  html += "</main>\n<script type=\"application/json\" id=\"report-figures\">";
  html += figures_json(report) + "</script>\n<script>\n";
  html += kChartJs;
  html += "\n</script>\n<script>\n";
  html += kReportJs;
  return html + "</script>\n</body>\n</html>\n";
}

}  // namespace millrace::study
