// report --plots: a run's figures as files, and the message if gnuplot is missing.
#include <cstdlib>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class Plots : public ProgramTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(succeeded(run(simulated("run", {"train.epochs=2", "loader.workers=1"}))));
  }
  Result plot(const Arguments& more = {}, const RunOptions& options = {}) {
    return run(Arguments{"report", in("run").string(), "--plots", in("plots").string()} + more,
               options);
  }
};

TEST_F(Plots, EveryFigureOfTheReportIsDrawn) {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "NO PLOT WAS DRAWN: gnuplot is not installed (apt-get install gnuplot-nox)";
  const Result result = plot({"--json"});
  ASSERT_TRUE(succeeded(result));
  const Json figures = parse_json(result.out)["figures"];
  ASSERT_GE(figures.size(), 3u);
  for (const Json& figure : figures) {
    const std::string file = in("plots") / figure["id"].get<std::string>();
    EXPECT_TRUE(read_file(file + ".png").starts_with("\x89PNG")) << file;
    const std::string svg = read_file(file + ".svg");
    EXPECT_TRUE(svg.starts_with("<?xml")) << file;
    EXPECT_TRUE(svg.ends_with("</svg>\n\n") || svg.ends_with("</svg>\n")) << file;
    for (const char* type : {".gp", ".dat"}) EXPECT_TRUE(fs::exists(file + type)) << file << type;
  }
  EXPECT_FALSE(fs::exists(in("run") / "report.html")) << "nobody asked for the page";
}

TEST_F(Plots, WithoutGnuplotNothingIsWritten) {
  RunOptions options;
  options.env["PATH"] = in("empty").string();
  const Result result = plot({"--html", in("page.html").string()}, options);
  EXPECT_TRUE(refused(result, 4, {"gnuplot", "not in PATH"}));
  EXPECT_NE(result.err.find("apt-get install gnuplot-nox"), std::string::npos);
  EXPECT_FALSE(fs::exists(in("plots")));
  EXPECT_FALSE(fs::exists(in("page.html")));
}

TEST_F(Plots, AFolderThatCannotBeMadeIsNamed) {
  write_file(in("plots"), "a file");
  const Result result = plot();
  EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 4) << result.err;
  EXPECT_EQ(read_file(in("plots")), "a file");
}

}  // namespace
}  // namespace millrace::program_test
