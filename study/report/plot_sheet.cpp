// Layout of gnuplot pages: sizes, key, terminals.
#include "study/report/plot_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "study/report/plot_text.h"

namespace millrace::study {
namespace {

constexpr int kFont = 11;                 ///< in units: 8.25 points
constexpr double kPoints = 0.75;          ///< points per unit
constexpr double kDots = 300.0 / 96;      ///< dots per unit
constexpr std::size_t kLongestName = 46;  ///< letters per entry of the key

}  // namespace

void PlotSheet::set(const std::string& what) { settings_ += fmt::format("set {}\n", what); }

void PlotSheet::set_x_range(double low, double high) {
  set(fmt::format("xrange [{}:{}]", low, high));
}

void PlotSheet::block(const std::string& columns) {
  if (blocks_++ > 0) data_ += "\n\n";
  data_ += fmt::format("# {}\n", columns);
}

void PlotSheet::row(const std::vector<double>& values) {
  std::string text;
  for (const double value : values)
    text += fmt::format("{}{}", text.empty() ? "" : " ",
                        std::isfinite(value) ? fmt::format("{}", value) : "NaN");
  text_row(text);
}

void PlotSheet::text_row(const std::string& text) { data_ += fmt::format("{}\n", text); }

void PlotSheet::draw(const std::string& how, const Series* named) {
  std::string title = "notitle";
  if (named != nullptr && !named->name.empty() && figure_.series.size() > 1) {
    title = fmt::format("title {}", gnuplot_text(shortened(named->name, kLongestName)));
    ++in_key_;
  }
  curves_.push_back(fmt::format("data index {} using {} {}", blocks_ - 1, how, title));
}

PlotScript PlotSheet::finish() const {
  std::size_t longest = 1;
  for (const Series& series : figure_.series)
    longest = std::max(longest, std::min(letters(series.name), kLongestName));
  const auto columns = std::clamp<std::size_t>(
      static_cast<std::size_t>(width_ / (kLetter * static_cast<double>(longest) + 42)), 1, 4);
  const auto rows = static_cast<int>((in_key_ + columns - 1) / columns);
  const int height = height_ + (rows > 0 ? 14 + 15 * rows : 0);

  std::string text = fmt::format(
      "# Draws {0}.svg and {0}.png from {0}.dat: gnuplot -d {0}.gp\n"
      "data = '{0}.dat'\n",
      figure_.id);
  if (!figure_.caption.empty())
    text += fmt::format("caption = {}\n", gnuplot_text(figure_.caption));
  text +=
      "set encoding utf8\n"
      "set border 3 lw 0.7\n"
      "set tics nomirror out scale 0.5\n"
      "set grid ytics lt 1 lw 0.5 lc rgb '#dddddd'\n";
  text += rows > 0 ? fmt::format(
                         "set key below center horizontal Left reverse maxcols {} samplen 1.5 "
                         "height 1\n",
                         columns)
                   : "set key off\n";
  text += fmt::format("set title {}\n",
                      gnuplot_lines(figure_.title, static_cast<std::size_t>(width_ / 7.4)));
  if (!figure_.x_label.empty())
    text += fmt::format("set xlabel {}\n", gnuplot_text(figure_.x_label));
  if (!figure_.y_label.empty())
    text += fmt::format("set ylabel {}\n", gnuplot_text(figure_.y_label));
  text += settings_;
  // noenhanced: names are full of underscores. SVG measures letters in units, cairo in points.
  text += fmt::format(
      "small = ',{}'\n"
      "set terminal svg noenhanced size {},{} font 'sans-serif,{}' background '#ffffff'\n"
      "set output '{}.svg'\n"
      "plot ",
      kFont - 2, width_, height, kFont, figure_.id);
  for (std::size_t i = 0; i < curves_.size(); ++i)
    text += fmt::format("{}{}", i > 0 ? ", \\\n     " : "", curves_[i]);
  text += fmt::format(
      "\nsmall = ',{}'\n"
      "set terminal pngcairo noenhanced size {:.0f},{:.0f} font 'sans-serif,{}' fontscale {} "
      "linewidth {} pointscale {}\n"
      "set output '{}.png'\n"
      "replot\n",
      kPoints * (kFont - 2), kDots * width_, kDots * height, kPoints * kFont, kDots, kDots, kDots,
      figure_.id);
  return {text, fmt::format("# {}\n", gnuplot_text(figure_.title)) + data_};
}

}  // namespace millrace::study
