// Writes a report as an HTML page: escapes text, and puts head, tables and the data of charts
// together.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "study/records/run_directory.h"
#include "study/report/report.h"

namespace millrace::study {

// Escaping for HTML, scripts, Markdown and CSV; base64.

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// Returns the length of the character at `at`; 0 if none begins there.
std::size_t character_at(std::string_view text, std::size_t at) {
  for (std::size_t length = 1; length <= 4 && at + length <= text.size(); ++length)
    if (base::is_utf8(text.substr(at, length))) return length;
  return 0;
}

bool is_control(char c) {
  const auto byte = static_cast<std::uint8_t>(c);
  return (byte < 0x20 && c != '\t' && c != '\n') || byte == 0x7f;
}

bool is_word(std::string_view text, std::size_t at) {
  return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 ||
                              static_cast<std::uint8_t>(text[at]) >= 0x80);
}

}  // namespace

std::string clean_utf8(std::string_view text) {
  if (base::is_utf8(text) && std::none_of(text.begin(), text.end(), is_control))
    return std::string(text);
  std::string clean;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_at(text, at);
    clean += length == 0 || is_control(text[at]) ? kReplacement : text.substr(at, length);
    at += std::max<std::size_t>(1, length);
  }
  return clean;
}

std::string html_escaped(std::string_view text) {
  std::string safe;
  for (const char c : clean_utf8(text)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string script_json(std::string_view json) {
  std::string safe;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '<') {
      safe += "\\u003c";
    } else if (json[i] == '>') {
      safe += "\\u003e";
    } else if (json[i] == '&') {
      safe += "\\u0026";
    } else if (json.substr(i, 3) == "\xe2\x80\xa8") {
      safe += "\\u2028";
      i += 2;
    } else if (json.substr(i, 3) == "\xe2\x80\xa9") {
      safe += "\\u2029";
      i += 2;
    } else {
      safe += json[i];
    }
  }
  return safe;
}

std::string markdown_escaped(std::string_view raw) {
  const std::string text = clean_utf8(raw);
  std::string safe;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n' || c == '\t') {
      safe += ' ';
      continue;
    }
    // Underscores within a word are not Markdown's: load_s stays readable.
    const bool marks = std::string_view("\\`*|<>&~").find(c) != std::string_view::npos ||
                       (c == ']' && i + 1 < text.size() &&
                        std::string_view("([:").find(text[i + 1]) != std::string_view::npos) ||
                       (c == '_' && !(i > 0 && is_word(text, i - 1) && is_word(text, i + 1))) ||
                       (i == 0 && c == '#');
    if (marks) safe += '\\';
    safe += c;
  }
  return safe;
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string field = "\"";
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field + '"';
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j)
      three = three << 8 | (i + j < bytes.size() ? static_cast<std::uint8_t>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      text += i + j > bytes.size() ? '=' : kDigits[three >> (18 - 6 * j) & 63];
  }
  return text;
}

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

/// Escapes the text of a heading, which breaks between words only and after these marks.
std::string heading(const std::string& text) {
  std::string html;
  for (const char c : html_escaped(text)) {
    html += c;
    if (c == '_' || c == '/' || c == ',' || c == '=') html += "<wbr>";
  }
  return html;
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
    html += "<th scope=\"col\">" + heading(name) + "</th>";
  html += "</tr></thead>\n<tbody>\n";
  for (const Series& series : figure.series) {
    double sum = 0;
    for (const double y : series.y) sum += std::isfinite(y) ? std::abs(y) : 0;
    html += "<tr><th scope=\"row\">" + heading(series.name) + "</th>";
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
  const bool wide = matrix || figure.kind == FigureKind::stacked_area ||
                    figure.categories.size() > 12 ||
                    (figure.kind == FigureKind::ridge && figure.series.size() > 6);
  std::string html =
      fmt::format("<figure id=\"{0}\"{1}>\n<figcaption><h3>{2}</h3>\n{3}</figcaption>\n", figure.id,
                  wide ? " class=\"wide\"" : "", heading(figure.title), paragraph(figure.caption));
  if (matrix)
    html += matrix_table(figure);
  else
    html += fmt::format(
        "<div class=\"plot\"><canvas id=\"canvas-{0}\" role=\"img\" aria-label=\"{1}\"></canvas>"
        "</div>\n<details data-figure=\"{0}\"><summary>numbers</summary></details>\n",
        figure.id, html_escaped(spoken(figure)));
  return html + "</figure>\n";
}

/// Returns each picture with its row's cells below: the first cell as its name, the others by their
/// headings.
std::string sheet_html(const ReportTable& table) {
  std::string html =
      fmt::format("<section class=\"table\" id=\"{}\">\n<h3>{}</h3>\n{}<ul class=\"sheet\">\n",
                  table.id, heading(table.title), paragraph(table.caption));
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    std::string spoken_row, lines;
    for (std::size_t cell = 1; cell < table.rows[i].size(); ++cell) {
      const std::string name = html_escaped(table.header[cell]);
      const std::string value = html_escaped(table.rows[i][cell]);
      spoken_row += fmt::format("{}{} {}", cell > 1 ? ", " : "", name, value);
      lines += fmt::format("<div>{} <b>{}</b></div>\n", name, value);
    }
    html += fmt::format(
        "<li><img alt=\"{}\" src=\"data:image/jpeg;base64,{}\">\n{}<small>{}</small></li>\n",
        spoken_row, table.pictures[i], lines, html_escaped(table.rows[i][0]));
  }
  return html + "</ul>\n</section>\n";
}

std::string table_html(const ReportTable& table) {
  if (!table.rows.empty() && table.pictures.size() == table.rows.size()) return sheet_html(table);
  bool words = false;
  for (const auto& row : table.rows)
    for (std::size_t i = 1; i < row.size(); ++i) words |= row[i].size() > kWordsFrom;
  std::string html = fmt::format(
      "<section class=\"table\" id=\"{}\">\n<h3>{}</h3>\n{}<div class=\"scroll\"><table{}><thead>"
      "<tr>",
      table.id, heading(table.title), paragraph(table.caption),
      table.chooses_runs ? fmt::format(" class=\"runs\" data-results=\"{}\"", table.results)
      : words            ? " class=\"words\""
                         : "");
  for (const std::string& cell : table.header)
    html += "<th scope=\"col\">" + heading(cell) + "</th>";
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (const std::string& cell : row) html += "<td>" + html_escaped(cell) + "</td>";
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n</section>\n";
}

std::string figures_html(const Report& report) {
  if (report.figures.empty()) return "";
  std::string html =
      "<h2>Figures</h2>\n<noscript><p>Charts need JavaScript, which is switched off.</p>"
      "</noscript>\n<div class=\"grid\">\n";
  for (const Figure& figure : report.figures) html += figure_html(figure);
  return html + "</div>\n";
}

std::string tables_html(const Report& report) {
  std::string html = report.tables.empty() ? "" : "<h2>Tables</h2>\n";
  for (const ReportTable& table : report.tables) html += table_html(table);
  return html;
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

std::string to_html(const Report& report, double reload_s) {
  std::string html = kHead;
  if (reload_s > 0)  // with JavaScript the script does it, and keeps open what the reader opened
    html += fmt::format("<noscript><meta http-equiv=\"refresh\" content=\"{:.0f}\"></noscript>\n",
                        std::ceil(reload_s));
  html += fmt::format("<title>{}</title>\n<style>\n{}</style>\n</head>\n<body{}>\n",
                      html_escaped(report.title), kReportCss,
                      reload_s > 0 ? fmt::format(" data-reload=\"{:g}\"", reload_s) : "");
  html += fmt::format("<header>\n<h1>{}</h1>\n", heading(report.title));
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
  // The table that chooses runs stands above the curves that it chooses.
  const bool chooses = std::any_of(report.tables.begin(), report.tables.end(),
                                   [](const ReportTable& table) { return table.chooses_runs; });
  html += chooses ? tables_html(report) + figures_html(report)
                  : figures_html(report) + tables_html(report);
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
