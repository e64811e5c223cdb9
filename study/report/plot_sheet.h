// What all plots have in common: the page with its title, axes, key and sizes, the data file in
// blocks, and how gnuplot is told of them.
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

  /// The figure must outlive it.
  explicit PlotSheet(const Figure& figure) : figure_(figure) {}

  /// `set WHAT`
  void set(const std::string& what);
  void set_x_range(double low, double high);
  /// Begins the data file's next block; the columns' meaning is for people.
  void block(const std::string& columns);
  /// A row of it; what is not finite becomes NaN, which gnuplot leaves out.
  void row(const std::vector<double>& values);
  void text_row(const std::string& text);
  /// Draws the last block, by what stands behind `using`. `named`: the series that the key is to
  /// name, where there are several.
  void draw(const std::string& how, const Series* named = nullptr);
  /// So much more height, in units.
  void grow(int height) { height_ += height; }
  /// As wide as two columns of a paper, 178 mm.
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
  // 86 mm; 96 units are an inch, which is what SVG means by them.
  int width_ = 326;
  int height_ = 215;
};

}  // namespace millrace::study
