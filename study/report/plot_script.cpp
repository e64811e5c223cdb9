// Writes one figure as a gnuplot script and its data file.
#include "study/report/plot_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "study/analysis/statistics.h"
#include "study/report/plot_sheet.h"
#include "study/report/plot_text.h"

namespace millrace::study {
namespace {

constexpr std::size_t kLongestTic = 36;
constexpr std::size_t kMaxMarks = 60;  ///< lines with more points have no marks

/// M. Okabe and K. Ito, "Color Universal Design" (2008). Yellow, hard to see on white, comes last.
constexpr std::array<std::string_view, 8> kColours{"#0072B2", "#E69F00", "#009E73", "#D55E00",
                                                   "#CC79A7", "#56B4E9", "#000000", "#F0E442"};
std::string_view colour(std::size_t i) { return kColours[i % kColours.size()]; }

/// Returns value i; NaN if it is missing or not finite.
double at(const std::vector<double>& values, std::size_t i) {
  return i < values.size() && std::isfinite(values[i]) ? values[i] : kNaN;
}
/// Returns the x coordinate of value i of a line.
double x_at(const Series& series, std::size_t i) {
  return series.x.empty() ? static_cast<double>(i) : at(series.x, i);
}
bool any_finite(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

/// Returns the upper edge of each part at one place of a stack, from below. A missing part adds
/// nothing; if all are missing, so is the place.
std::vector<double> upper_edges(const std::vector<double>& parts) {
  std::vector<double> edges(parts.size(), kNaN);
  if (!any_finite(parts)) return edges;
  double sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    edges[i] = sum += std::isfinite(parts[i]) ? parts[i] : 0;
  return edges;
}

/// Draws one figure on a sheet. Every series has a block of the data file; the parts of a stack
/// share one.
class Plot {
 public:
  explicit Plot(const Figure& figure) : figure_(figure), sheet_(figure) {
    for (const Series& series : figure.series) {
      (series.bound ? bounds_ : drawn_).push_back(&series);
      for (std::size_t i = 0; i < series.y.size(); ++i)
        if (std::isfinite(series.y[i]))
          for (const auto* values : {&series.y, &series.low, &series.high}) y_.add(at(*values, i));
    }
  }

  PlotScript write() {
    if (y_.empty()) {
      nothing();
    } else {
      switch (figure_.kind) {
        case FigureKind::line:
          lines();
          break;
        case FigureKind::stacked_area:
          areas();
          break;
        case FigureKind::bar:
          bars();
          break;
        case FigureKind::stacked_bar:
          stacked_bars();
          break;
        case FigureKind::matrix:
          matrix();
          break;
      }
    }
    return sheet_.finish();
  }

 private:
  void nothing();
  void lines();
  void areas();
  void bars();
  void stacked_bars();
  void matrix();

  void stack(const std::string& how);
  void intervals(const Series& series, std::string_view line_colour);
  void bound(const Series& series, const std::vector<std::pair<double, double>>& points);
  void line_bounds(const Range& x);
  void bar_bounds();
  void y_range();
  void category_axis();

  const Figure& figure_;
  std::vector<const Series*> drawn_, bounds_;
  Range y_;
  PlotSheet sheet_;
};

void Plot::nothing() {
  sheet_.block("no value");
  sheet_.text_row("0 2");  // outside of the axes, because gnuplot rejects a plot without points
  sheet_.set_x_range(0, 1);
  sheet_.set("yrange [0:1]");
  sheet_.set("label 1 'no data' at graph 0.5, 0.5 center");
  sheet_.set("tics format ''");
  sheet_.draw("1:2 with points");
}

/// Starts the y axis at 0, unless the values lie close together and far from 0.
void Plot::y_range() {
  const bool line = figure_.kind == FigureKind::line;
  if (y_.low < 0)
    sheet_.set("xzeroaxis lt -1 lw 0.5");
  else if (!line || y_.low < 0.6 * y_.high || y_.low == y_.high)
    sheet_.set(y_.high > 0 ? "yrange [0:*]" : "yrange [0:1]");
  if (y_.high >= 1e6) sheet_.set("format y '%.0f'");                // not 2e+06
  if (!bounds_.empty()) sheet_.set("offsets 0, 0, graph 0.04, 0");  // keeps bounds off the frame
}

/// Draws intervals from the last block's columns 3 and 4. gnuplot's own error bars have a hole in
/// the middle.
void Plot::intervals(const Series& series, std::string_view line_colour) {
  if (!any_finite(series.low) || !any_finite(series.high)) return;
  sheet_.draw(fmt::format(
      "1:3:(0):($4-$3) with vectors heads size screen 0.008,90 lw 1 lc rgb '{}'", line_colour));
}

void Plot::bound(const Series& series, const std::vector<std::pair<double, double>>& points) {
  sheet_.block(fmt::format("bound {}: x y", gnuplot_text(series.name)));
  for (const auto& [x, y] : points) sheet_.row({x, y});
  if (!any_finite(series.y)) return;
  const auto nth = std::find(bounds_.begin(), bounds_.end(), &series) - bounds_.begin();
  sheet_.draw(fmt::format("1:2 with lines dt {} lw 1.2 lc rgb '{}'", 2 + nth % 4,
                          nth % 2 == 0 ? "#000000" : "#666666"),
              &series);
}

/// Draws a bound of one value from end to end of `x`.
void Plot::line_bounds(const Range& x) {
  for (const Series* series : bounds_) {
    std::vector<std::pair<double, double>> points;
    for (std::size_t k = 0; k < series->y.size(); ++k)
      points.emplace_back(x_at(*series, k), at(series->y, k));
    if (points.size() == 1 && !x.empty())
      points = {{x.low, points[0].second}, {x.high, points[0].second}};
    bound(*series, points);
  }
}

void Plot::lines() {
  Range x;
  bool whole = true;
  bool few = false;
  for (std::size_t n = 0; n < drawn_.size(); ++n) {
    const Series& one = *drawn_[n];
    sheet_.block(fmt::format("{}: x y low high", gnuplot_text(one.name)));
    std::size_t points = 0;
    for (std::size_t k = 0; k < one.y.size(); ++k) {
      sheet_.row({x_at(one, k), at(one.y, k), at(one.low, k), at(one.high, k)});
      x.add(x_at(one, k));
      whole &= x_at(one, k) == std::floor(x_at(one, k));
      points += std::isfinite(at(one.y, k) + x_at(one, k));
    }
    if (points == 0) continue;
    few |= points <= kMaxMarks;
    sheet_.draw(
        fmt::format("1:2 with {} lw 1.5 dt {} lc rgb '{}'",
                    points <= kMaxMarks ? fmt::format("linespoints pt {} ps 0.5", 5 + 2 * (n % 5))
                                        : "lines",
                    1 + n / kColours.size(), colour(n)),
        &one);
    intervals(one, colour(n));
  }
  for (const Series* series : bounds_)
    for (const double place : series->x) x.add(place);
  const double pad = x.low == x.high ? 1 : few ? 0.03 * (x.high - x.low) : 0;
  if (!x.empty()) sheet_.set_x_range(x.low - pad, x.high + pad);
  if (whole && x.high - x.low <= 12) sheet_.set("xtics 1");  // there is no epoch 1.5
  y_range();
  line_bounds(x);
}

/// Draws all parts of a stack from columns 2 and up of the last block, lower ones over higher ones.
void Plot::stack(const std::string& how) {
  for (std::size_t n = drawn_.size(); n-- > 0;)
    sheet_.draw(fmt::format("1:{}{} fs solid noborder fc rgb '{}'", n + 2, how, colour(n)),
                drawn_[n]);
}

void Plot::areas() {
  std::map<double, std::vector<double>> rows;
  std::string names;
  for (std::size_t n = 0; n < drawn_.size(); ++n) {
    names += fmt::format(" {}", gnuplot_text(drawn_[n]->name));
    for (std::size_t k = 0; k < drawn_[n]->y.size(); ++k) {
      const double x = x_at(*drawn_[n], k);
      if (!std::isfinite(x)) continue;
      rows.try_emplace(x, drawn_.size(), kNaN).first->second[n] = at(drawn_[n]->y, k);
    }
  }
  sheet_.block(fmt::format("x, then the upper edge of{}", names));
  Range x;
  for (const auto& [place, parts] : rows) {
    std::vector<double> columns{place};
    for (const double edge : upper_edges(parts)) columns.push_back(edge);
    sheet_.row(columns);
    x.add(place);
  }
  if (x.low < x.high)
    sheet_.set_x_range(x.low, x.high);
  else if (!x.empty())
    sheet_.set_x_range(x.low - 1, x.high + 1);
  y_range();
  stack(" with filledcurves y1=0");
  line_bounds(x);
}

/// Returns names as tics at 0, 1, 2, ..., at most `most` of them.
std::string tics(const std::vector<std::string>& names, std::size_t most) {
  const std::size_t every = std::max<std::size_t>((names.size() + most - 1) / most, 1);
  std::string text;
  for (std::size_t i = 0; i < names.size(); i += every)
    text +=
        fmt::format("{}{} {}", i > 0 ? ", " : "", gnuplot_tic(shortened(names[i], kLongestTic)), i);
  return fmt::format("({})", text);
}

void Plot::category_axis() {
  std::size_t most = 20;  // labels side by side
  if (figure_.kind == FigureKind::matrix) {
    most = 14;
  } else if (figure_.categories.size() > most) {
    sheet_.widen();
    most = 46;
  }
  std::size_t sum = 0;
  std::size_t longest = 0;
  for (const std::string& name : figure_.categories) {
    const std::size_t length = std::min(letters(name), kLongestTic);
    sum += length + 2;
    longest = std::max(longest, length);
  }
  std::string turn = "norotate";
  if (static_cast<double>(sum) * PlotSheet::kLetter > 0.8 * sheet_.width()) {
    const bool few = figure_.categories.size() <= 8;
    turn = few ? "rotate by 40 right" : "rotate by 90 right";
    sheet_.grow(
        static_cast<int>(static_cast<double>(longest) * PlotSheet::kLetter * (few ? 0.65 : 1)));
  }
  sheet_.set(fmt::format("xtics {} {}", turn, tics(figure_.categories, most)));
  sheet_.set_x_range(-0.6, static_cast<double>(figure_.categories.size()) - 0.4);
}

/// Draws bounds across each category's width; a bound of one value crosses all of them.
void Plot::bar_bounds() {
  for (const Series* series : bounds_) {
    std::vector<std::pair<double, double>> points;
    for (std::size_t k = 0; k < figure_.categories.size(); ++k)
      for (const double side : {-0.5, 0.5})
        points.emplace_back(static_cast<double>(k) + side,
                            at(series->y, series->y.size() == 1 ? 0 : k));
    bound(*series, points);
  }
}

void Plot::bars() {
  category_axis();
  y_range();
  const double width = 0.8 / static_cast<double>(std::max<std::size_t>(drawn_.size(), 1));
  for (std::size_t n = 0; n < drawn_.size(); ++n) {
    const Series& one = *drawn_[n];
    sheet_.block(fmt::format("{}: x y low high", gnuplot_text(one.name)));
    for (std::size_t k = 0; k < figure_.categories.size(); ++k)
      sheet_.row({static_cast<double>(k) - 0.4 + (static_cast<double>(n) + 0.5) * width,
                  at(one.y, k), at(one.low, k), at(one.high, k)});
    if (!any_finite(one.y)) continue;
    sheet_.draw(
        fmt::format("1:2:({}) with boxes fs solid noborder fc rgb '{}'", 0.95 * width, colour(n)),
        &one);
    intervals(one, colour(n) == "#000000" ? "#999999" : "#000000");
  }
  bar_bounds();
}

void Plot::stacked_bars() {
  category_axis();
  y_range();
  std::string names;
  for (const Series* series : drawn_) names += fmt::format(" {}", gnuplot_text(series->name));
  sheet_.block(fmt::format("x, then the upper edge of{}", names));
  bool any = false;
  for (std::size_t k = 0; k < figure_.categories.size(); ++k) {
    std::vector<double> parts;
    for (const Series* series : drawn_) parts.push_back(at(series->y, k));
    any |= any_finite(parts);
    std::vector<double> columns{static_cast<double>(k)};
    for (const double edge : upper_edges(parts)) columns.push_back(edge);
    sheet_.row(columns);
  }
  if (any) stack(":(0.75) with boxes");
  bar_bounds();
}

void Plot::matrix() {
  const std::size_t rows = figure_.series.size();
  std::size_t columns = figure_.categories.size();
  for (const Series& series : figure_.series) columns = std::max(columns, series.y.size());
  const double low = std::min(y_.low, 0.0);
  const double high = y_.high > low ? y_.high : low + 1;
  const double half = low + 0.55 * (high - low);
  sheet_.block("column row value, and what stands on bright and on dark ground");
  std::vector<std::string> names;
  for (std::size_t r = 0; r < rows; ++r) {
    names.push_back(figure_.series[r].name);
    for (std::size_t c = 0; c < columns; ++c) {
      const double value = at(figure_.series[r].y, c);
      const bool whole = value == std::floor(value) && std::abs(value) < 1e6;
      const std::string text = !std::isfinite(value) ? ""
                               : whole               ? fmt::format("{:.0f}", value)
                                                     : fmt::format("{:.2g}", value);
      sheet_.text_row(fmt::format("{} {} {} \"{}\" \"{}\"", c, r,
                                  std::isfinite(value) ? fmt::format("{}", value) : "NaN",
                                  value <= half ? text : "", value > half ? text : ""));
    }
  }
  category_axis();
  sheet_.set_x_range(-0.5, static_cast<double>(columns) - 0.5);
  sheet_.set(fmt::format("yrange [{}:-0.5]", static_cast<double>(rows) - 0.5));
  sheet_.set(fmt::format("ytics {}", tics(names, 22)));
  sheet_.set("tics scale 0");
  sheet_.set("grid noytics");
  sheet_.set("palette defined (0 '#ffffff', 0.5 '#6baed6', 1 '#08306b')");
  sheet_.set(fmt::format("cbrange [{}:{}]", low, high));
  sheet_.grow(8 * static_cast<int>(std::min<std::size_t>(rows, 14)));
  // Cells drawn as pixels keep their edges in any viewer; too many would make a huge file.
  sheet_.draw(fmt::format("1:2:3 with image{}", rows * columns <= 4096 ? " pixels" : ""));
  if (columns > 12 || rows > 24) return;
  for (const auto& [column, ink] : {std::pair(4, "#000000"), std::pair(5, "#ffffff")})
    sheet_.draw(fmt::format("1:2:{} with labels tc rgb '{}' font small", column, ink));
}

}  // namespace

PlotScript plot_script(const Figure& figure) { return Plot(figure).write(); }

}  // namespace millrace::study
