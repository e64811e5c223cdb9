// Figures as gnuplot scripts, and gnuplot's results if it is installed.
#include "study/report/report_plots.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/error.h"
#include "pipeline/decoders/decoder.h"
#include "study/report/plot_script.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Tree = boost::property_tree::ptree;

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();
const std::string kHostile = "it's a_b^{c} \"q\" \\ & <b> # `ls` 9% $y end\\";

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

/// Returns a figure with everything that its kind can have.
Figure figure_of(FigureKind kind) {
  Figure figure;
  figure.kind = kind;
  figure.id = "figure-" + std::to_string(static_cast<int>(kind));
  figure.title = "Throughput, by workers";
  figure.caption = "Where it stops to grow.";
  figure.x_label = "workers";
  figure.y_label = "images/s";
  figure.categories = {"0", "1", "2", "4"};
  figure.series = {{"measured",
                    {0, 1, 2, 4},
                    {100, 200, kGap, 350},
                    {90, 190, kGap, 340},
                    {110, 210, kGap, 360}},
                   {"predicted", {0, 1, 2, 4}, {110, 190, 300, 340}, {}, {}}};
  if (kind != FigureKind::matrix)
    figure.series.push_back({"device", {}, {400}, {}, {}, /*bound=*/true});
  return figure;
}

constexpr FigureKind kKinds[] = {FigureKind::line, FigureKind::stacked_area, FigureKind::bar,
                                 FigureKind::stacked_bar, FigureKind::matrix};

TEST(PlotScript, SaysWhatAxesShow) {
  for (const FigureKind kind : kKinds) {
    const std::string script = plot_script(figure_of(kind)).script;
    EXPECT_EQ(count_of(script, "set xlabel \"workers\""), 1u);
    EXPECT_EQ(count_of(script, "set ylabel \"images/s\""), 1u);
    EXPECT_EQ(count_of(script, " noenhanced "), count_of(script, "set terminal")) << script;
  }
}

TEST(PlotScript, AMissingValueIsAGap) {
  const PlotScript line = plot_script(figure_of(FigureKind::line));
  EXPECT_EQ(count_of(line.data, "\n1 200 190 210\n2 NaN NaN NaN\n4 350 340 360\n"), 1u)
      << line.data;
  Figure infinite = figure_of(FigureKind::line);
  infinite.series[0].y[2] = INFINITY;
  EXPECT_EQ(plot_script(infinite).data, line.data);
}

TEST(PlotScript, StacksAddUp) {
  Figure figure = figure_of(FigureKind::stacked_area);
  figure.series[1].y = {10, 20, kGap, 40};
  EXPECT_EQ(count_of(plot_script(figure).data, "\n0 100 110\n1 200 220\n2 NaN NaN\n4 350 390\n"),
            1u)
      << plot_script(figure).data;
  figure.series[1].y[2] = 5;
  EXPECT_EQ(count_of(plot_script(figure).data, "\n2 0 5\n"), 1u) << "one part is there";
  figure.kind = FigureKind::stacked_bar;
  EXPECT_EQ(count_of(plot_script(figure).data, "\n2 0 5\n3 350 390\n"), 1u) << "at the categories";
}

TEST(PlotScript, BoundsAreDashedAndIntervalsDrawn) {
  for (const FigureKind kind :
       {FigureKind::line, FigureKind::stacked_area, FigureKind::bar, FigureKind::stacked_bar})
    EXPECT_EQ(count_of(plot_script(figure_of(kind)).script, "with lines dt 2"), 1u);
  EXPECT_EQ(count_of(plot_script(figure_of(FigureKind::line)).script, "with vectors heads"), 1u);
  EXPECT_EQ(count_of(plot_script(figure_of(FigureKind::bar)).script, "with vectors heads"), 1u);
  const std::string data = plot_script(figure_of(FigureKind::line)).data;
  EXPECT_EQ(count_of(data, "\n0 400\n4 400\n"), 1u) << "one value reaches from end to end";
}

TEST(PlotScript, NamesStayInsideTheirQuotes) {
  Figure figure = figure_of(FigureKind::bar);
  figure.title = figure.caption = figure.x_label = figure.y_label = kHostile + "\nexit 3";
  figure.series[0].name = figure.categories[1] = kHostile + "\nexit 3";
  const PlotScript plot = plot_script(figure);
  for (const std::string& text : {plot.script, plot.data}) {
    EXPECT_EQ(count_of(text, "\nexit 3"), 0u);
    EXPECT_EQ(count_of(text, "`"), 0u);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      EXPECT_EQ(count_of(line, "\"") % 2, 0u) << line;
  }
}

class ReportPlots : public testing::Test {
 protected:
  ReportPlots() : path_(std::getenv("PATH")) {
    std::string pattern = (fs::temp_directory_path() / "millrace-plots-XXXXXX").string();
    base_ = mkdtemp(pattern.data());
  }
  ~ReportPlots() override {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(base_);
  }
  static bool has_gnuplot() { return std::system("gnuplot --version > /dev/null 2>&1") == 0; }
  fs::path out() const { return base_ / "plots"; }
  static std::string text(const fs::path& file) {
    std::ostringstream out;
    out << std::ifstream(file, std::ios::binary).rdbuf();
    return out.str();
  }

  /// Returns the contents of the SVG's text elements. Throws if it is not well-formed XML.
  static std::multiset<std::string> texts_in(const fs::path& svg) {
    std::ifstream in(svg);
    Tree tree;
    boost::property_tree::read_xml(in, tree);
    EXPECT_EQ(tree.size(), 1u);
    std::multiset<std::string> texts;
    collect(tree.get_child("svg"), texts);
    return texts;
  }
  /// Counts the colours in a PNG, decoded as data sets are.
  static std::size_t colours_in(const fs::path& png) {
    const std::string bytes = text(png);
    pipeline::DecodeScratch scratch;
    const ImageView image = scratch.decode(
        {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, 3, 10'000'000);
    std::set<std::tuple<int, int, int>> colours;
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x) {
        colours.emplace(*image.at(x, y, 0), *image.at(x, y, 1), *image.at(x, y, 2));
      }
    EXPECT_GT(image.width, 900);
    return colours.size();
  }

  fs::path base_;

 private:
  static void collect(const Tree& tree, std::multiset<std::string>& texts) {
    for (const auto& [name, child] : tree) {
      if (name == "text") texts.insert(child.data());
      collect(child, texts);
    }
  }
  std::string path_;
};

#define MILLRACE_NEEDS_GNUPLOT() \
  if (!has_gnuplot())            \
  GTEST_SKIP() << "NO PLOT WAS DRAWN: gnuplot is not installed (apt-get install gnuplot-nox)"

TEST_F(ReportPlots, EveryKindIsDrawn) {
  MILLRACE_NEEDS_GNUPLOT();
  std::vector<Figure> figures;
  for (const FigureKind kind : kKinds) figures.push_back(figure_of(kind));
  write_plots(figures, out());
  for (const Figure& figure : figures) {
    const fs::path file = out() / figure.id;
    const auto texts = texts_in(file.string() + ".svg");
    EXPECT_EQ(texts.count(figure.title), 1u) << figure.id;
    EXPECT_EQ(texts.count(figure.x_label), 1u) << figure.id;
    EXPECT_EQ(texts.count(figure.y_label), 1u) << figure.id;
    const std::size_t key = figure.kind == FigureKind::matrix ? 1 : figure.series.size();
    std::size_t named = 0;
    for (const Series& series : figure.series) named += texts.count(series.name);
    EXPECT_GE(named, key) << figure.id;
    EXPECT_EQ(texts.count("no data"), 0u) << figure.id;
    EXPECT_GT(colours_in(file.string() + ".png"), 8u) << figure.id;
  }
}

TEST_F(ReportPlots, TwiceTheSameBytes) {
  MILLRACE_NEEDS_GNUPLOT();
  std::vector<Figure> figures;
  for (const FigureKind kind : kKinds) figures.push_back(figure_of(kind));
  write_plots(figures, out());
  write_plots(figures, base_ / "again");
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(out())) {
    ++files;
    EXPECT_EQ(text(entry.path()), text(base_ / "again" / entry.path().filename())) << entry.path();
  }
  EXPECT_EQ(files, 4 * figures.size());
}

TEST_F(ReportPlots, HostileNamesAreDrawnAsTheyStand) {
  MILLRACE_NEEDS_GNUPLOT();
  const std::string planted = (base_ / "planted").string();
  const std::vector<std::string> names{kHostile,
                                       "`touch " + planted + "`",
                                       "\"; system('touch " + planted + "') #",
                                       "@GPVAL_TERM",
                                       "'; system('" + planted + "')",
                                       "x\nset output '" + planted + "'",
                                       "%d %s %n",
                                       "\xFF\xFE"};
  for (std::size_t i = 0; i < 2 * names.size(); ++i) {  // every name in two kinds
    const std::string& name = names[i % names.size()];
    Figure figure = figure_of(kKinds[i % std::size(kKinds)]);
    figure.title = figure.x_label = figure.y_label = figure.caption = name;
    figure.categories[1] = figure.series[0].name = figure.series[1].name = name;
    write_plots({&figure, 1}, out());
    texts_in(out() / (figure.id + ".svg"));
    EXPECT_GT(colours_in(out() / (figure.id + ".png")), 8u) << name;
  }
  EXPECT_FALSE(fs::exists(planted));
  Figure figure = figure_of(FigureKind::bar);
  figure.title = kHostile;
  figure.categories = {"5%d", "a_b^{c}", "`x`", "@y"};
  write_plots({&figure, 1}, out());
  const auto texts = texts_in(out() / (figure.id + ".svg"));
  EXPECT_EQ(texts.count(kHostile), 1u);
  for (const std::string& name : figure.categories) EXPECT_EQ(texts.count(name), 1u) << name;
}

TEST_F(ReportPlots, FiguresWithHardlyAnythingAreDrawn) {
  MILLRACE_NEEDS_GNUPLOT();
  for (const FigureKind kind : kKinds) {
    Figure empty;
    empty.id = "empty";
    empty.kind = kind;
    Figure gaps = figure_of(kind);
    for (Series& series : gaps.series) series = {series.name, {}, {kGap, kGap}, {}, {}};
    Figure zero = figure_of(kind);
    for (Series& series : zero.series) series = {series.name, {1}, {0}, {}, {}, series.bound};
    Figure only_a_bound = figure_of(kind);
    only_a_bound.series[0].y.assign(4, kGap);
    only_a_bound.series.erase(only_a_bound.series.begin() + 1);
    for (const Figure& figure : {empty, gaps, zero, only_a_bound}) {
      write_plots({&figure, 1}, out());
      bool any = false;
      for (const Series& series : figure.series) any |= std::isfinite(series.y[0]);
      EXPECT_EQ(texts_in(out() / (figure.id + ".svg")).count("no data"), any ? 0u : 1u)
          << figure.id;
    }
  }
}

TEST_F(ReportPlots, ManyCategoriesAndLongNamesFit) {
  MILLRACE_NEEDS_GNUPLOT();
  for (const FigureKind kind : {FigureKind::bar, FigureKind::matrix}) {
    Figure figure = figure_of(kind);
    figure.categories.assign(120, std::string(200, 'x'));
    figure.series.resize(2);
    for (Series& series : figure.series) {
      series.name = std::string(200, 'y');
      series.y.assign(120, 0.5);
    }
    write_plots({&figure, 1}, out());
    EXPECT_LE(texts_in(out() / (figure.id + ".svg")).count(std::string(35, 'x') + "…"), 46u);
    EXPECT_GT(colours_in(out() / (figure.id + ".png")), 2u);
  }
}

TEST_F(ReportPlots, WithoutGnuplotItSaysWhatToInstall) {
  setenv("PATH", base_.c_str(), 1);
  const Figure figure = figure_of(FigureKind::bar);
  try {
    write_plots({&figure, 1}, out());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::device);
    EXPECT_NE(error.hint().find("gnuplot-nox"), std::string::npos);
  }
  EXPECT_FALSE(fs::exists(out())) << "something was written before";
}

TEST_F(ReportPlots, AGnuplotThatFailsIsQuoted) {
  std::ofstream(base_ / "gnuplot")
      << "#!/bin/sh\n"
         "printf '\\nplot x\\n     ^\\n\"'$2'\" line 7: no such thing\\n\\n'\n"
         "exit 1\n";
  chmod((base_ / "gnuplot").c_str(), 0755);
  setenv("PATH", (base_.string() + ":/bin").c_str(), 1);
  const Figure figure = figure_of(FigureKind::bar);
  try {
    write_plots({&figure, 1}, out());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::failed);
    EXPECT_NE(std::string(error.what()).find("\"figure-2.gp\" line 7: no such thing"),
              std::string::npos)
        << error.what();
  }
  std::ofstream(base_ / "gnuplot") << "#!/bin/sh\nexit 0\n";
  EXPECT_THROW(write_plots({&figure, 1}, out()), RunError) << "it left nothing";
}

TEST_F(ReportPlots, ANameThatIsNoFilesIsRefused) {
  std::ofstream(base_ / "gnuplot") << "#!/bin/sh\nexit 0\n";
  chmod((base_ / "gnuplot").c_str(), 0755);
  setenv("PATH", base_.c_str(), 1);
  for (const char* id : {"", "../x", "-d", "a b"}) {
    Figure figure = figure_of(FigureKind::bar);
    figure.id = id;
    EXPECT_THROW(write_plots({&figure, 1}, out()), RunError) << id;
  }
}

}  // namespace
}  // namespace millrace::study
