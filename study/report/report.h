// Contents of a report, independent of HTML, Markdown, CSV and images. All writers receive the same
// struct and therefore show the same figures.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace millrace::study {

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
  std::vector<std::vector<std::string>> csv{};  ///< header and rows for CSV, where it has others
  /// Bytes of a JPEG file per row. The page shows each above its row's cells instead of the table.
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

}  // namespace millrace::study
