// Common parts of all plots: the page with its title, axes, key and sizes, the data file in blocks,
// and the gnuplot commands.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "study/report/plot_script.h"
#include "study/report/report.h"

namespace millrace::study {

/// Collects settings, data and curves of one figure, then puts them in order.
class PlotSheet {
 public:
  static constexpr double kLetter = 6.2;  ///< width of most letters, in units

  /// Keeps a reference to `figure`, which must outlive the sheet.
  explicit PlotSheet(const Figure& figure) : figure_(figure) {}

  /// `set WHAT`
  void set(const std::string& what);
  void set_x_range(double low, double high);
  /// Begins the data file's next block. `columns` is a comment that names the columns.
  void block(const std::string& columns);
  /// Adds a row. Values that are not finite become NaN, which gnuplot leaves out.
  void row(const std::vector<double>& values);
  void text_row(const std::string& text);
  /// Draws the last block; `how` is the text after `using`. `named` is the series that the key
  /// names, if there are several.
  void draw(const std::string& how, const Series* named = nullptr);
  /// Increases the height by `height` units.
  void grow(int height) { height_ += height; }
  /// Sets the width to two columns of a paper, 178 mm.
  void widen() { width_ = 672; }
  int width() const { return width_; }

  PlotScript finish() const;

 private:
  const Figure& figure_;
  std::string settings_;
  std::string data_;
  int blocks_ = 0;
  std::vector<std::string> curves_;
  std::size_t in_key_ = 0;
  // 86 mm: SVG has 96 units per inch.
  int width_ = 326;
  int height_ = 215;
};

}  // namespace millrace::study
