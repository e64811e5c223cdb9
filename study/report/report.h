// Contents of a report, and its writers: HTML, Markdown, CSV and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::study {

// Contents of a report, independent of HTML, Markdown, CSV and images. All writers receive the same
// struct and therefore show the same figures.

struct Series {
  std::string name{};
  std::vector<double> x{};    ///< for lines and areas; empty for bars, which stand at categories
  std::vector<double> y{};    ///< NaN leaves a gap
  std::vector<double> low{};  ///< lower ends of intervals, one per y; empty if there are none
  std::vector<double> high{};
  bool bound = false;  ///< a limit to compare with: drawn dashed, without points
  bool line = false;   ///< among bars: drawn as a line with points, and added to no stack
  std::string run{};   ///< the run that it belongs to, where a page lets readers choose runs
};

enum class FigureKind { line, stacked_area, bar, stacked_bar, matrix, ridge };

/// One plot. A matrix has one series per row and one y per column. A ridge has one distribution per
/// series, each drawn in a row of its own: y is the share of the values near x, and x is
/// logarithmic.
struct Figure {
  std::string id{};  ///< letters, digits and dashes; unique in a report; names its files
  std::string title{};
  std::string caption{};  ///< one sentence on what to look for; may be empty
  FigureKind kind = FigureKind::line;
  std::string x_label{};  ///< includes the unit
  std::string y_label{};
  std::vector<std::string> categories{};  ///< categories of bars, or columns of a matrix
  bool logarithmic = false;               ///< the axis of bars' values
  std::string marked{};                   ///< category that bars stress; empty: none
  std::vector<Series> series{};
};

struct ReportTable {
  std::string id{};
  std::string title{};
  std::string caption{};
  std::vector<std::string> header{};
  std::vector<std::vector<std::string>> rows{};  ///< each row has as many cells as the header
  /// Each row is a run, named in its first cell. The page can filter and sort the rows, and draws
  /// the series of the chosen runs only.
  bool chooses_runs = false;
  std::size_t results = 0;  ///< with chooses_runs: columns of results after the first, kept in view
  std::vector<std::vector<std::string>> csv{};  ///< header and rows for CSV, where it has others
  /// A JPEG file in base64 per row. The page shows each above its row's cells instead of the table.
  std::vector<std::string> pictures{};
};

struct ReportImage {
  std::string id{};
  std::string title{};
  std::string caption{};
  std::string png{};  ///< bytes of a PNG file
};

/// A report in reading order: verdict and facts, figures, tables, images.
struct Report {
  std::string title{};
  std::string verdict{};                                     ///< one sentence; may be empty
  std::vector<std::pair<std::string, std::string>> facts{};  ///< name, value
  std::vector<Figure> figures{};
  std::vector<ReportTable> tables{};
  std::vector<ReportImage> images{};
  std::vector<std::string> notes{};  ///< warnings, and what could not be shown and why
};

// Escapes text that came from data, for each place where a report puts it.

/// Returns well-formed UTF-8. Invalid bytes, and control characters except tab and newline, become
/// U+FFFD.
std::string clean_utf8(std::string_view text);
/// Escapes for an element's text and for attributes in either kind of quotes.
std::string html_escaped(std::string_view text);
/// Escapes JSON for a <script> element: without <, > or & (so it cannot end the element or begin a
/// comment) and without U+2028 or U+2029. The value stays the same.
std::string script_json(std::string_view json);
/// Escapes for inline Markdown and table cells: one line, no markup.
std::string markdown_escaped(std::string_view text);
/// Returns a field as in RFC 4180, quoted if necessary.
std::string csv_field(std::string_view text);
/// Encodes as in RFC 4648, section 4.
std::string base64(std::string_view bytes);

// Fixed parts of a report's page. The build makes them from study/report/page/ and Debian's
// Chart.js.

extern const std::string_view kReportCss;
extern const std::string_view kReportJs;
extern const std::string_view kChartJs;  ///< with its licence line

// Writes a report as one self-contained HTML file: it opens from the disk and makes no network
// request.

/// Returns the page. The embedded Chart.js draws charts; matrices are tables. Texts of the report
/// are shown literally and never act as markup or script. A page on a run that goes on loads itself
/// again every `reload_s` seconds; 0: never.
std::string to_html(const Report& report, double reload_s = 0);

// Writes a report as text: Markdown for reading, CSV and JSON for further computation.

/// Returns GitHub's Markdown. Figures become tables of their values, or of a summary per series if
/// there are many values. Leaves pictures out.
std::string to_markdown(const Report& report);

/// Returns a header, then one row per category or x. Each series has one column, plus NAME low and
/// NAME high if it has intervals. Series with different x are stacked: series, x, y. A matrix has
/// one row per series. NaN is an empty field. Quoting follows RFC 4180; lines end in LF.
std::string csv(const std::vector<std::vector<std::string>>& rows);
std::string to_csv(const Figure& figure);
std::string to_csv(const ReportTable& table);

/// Returns the struct's members; pictures in base64. Values that are not finite become null.
nlohmann::ordered_json to_json(const Figure& figure);
nlohmann::ordered_json to_json(const Report& report);

}  // namespace millrace::study
