// Names from data become plain text in a plot.
#include "study/report/plot_text.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace millrace::study {
namespace {

TEST(PlotText, StaysOnOneLine) { EXPECT_EQ(drawable("a\nb\tc\x7F\r"), "a b c\uFFFD\uFFFD"); }

TEST(PlotText, WhatIsNotUtf8IsReplaced) {
  EXPECT_EQ(drawable("gr\xC3\xB6\xC3\x9F"
                     "e"),
            "größe");
  EXPECT_EQ(drawable("\xFF"), "\uFFFD");
  EXPECT_EQ(drawable("a\xC3"), "a\uFFFD") << "cut short";
  EXPECT_EQ(drawable("\uFFFE"), "\uFFFD") << "XML can't hold it";
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; second += 7)
      EXPECT_TRUE(base::is_utf8(
          drawable(std::string{static_cast<char>(first), static_cast<char>(second), 'x'})));
}

TEST(PlotText, LongTextEndsInAnEllipsis) {
  EXPECT_EQ(shortened("größe", 5), "größe");
  EXPECT_EQ(shortened("größer", 5), "größ…");
  EXPECT_EQ(letters(shortened(std::string(1000, 'x'), 24)), 24u);
}

TEST(PlotText, LiteralsHoldNothingThatGnuplotReads) {
  EXPECT_EQ(gnuplot_text("images/s"), "\"images/s\"");
  EXPECT_EQ(gnuplot_text("a \"b\" \\n"), "\"a \\042b\\042 \\134n\"");
  EXPECT_EQ(gnuplot_text("`ls` @x it's"), "\"\\140ls\\140 \\100x it\\047s\"");
  EXPECT_EQ(gnuplot_text("end\\"), "\"end\\134\"") << "no line goes on in the next";
  EXPECT_EQ(gnuplot_text("50%"), "\"50%\"");
  EXPECT_EQ(gnuplot_tic("50%"), "\"50%%\"") << "tics are formats";
}

TEST(PlotText, LinesBreakBetweenWords) {
  EXPECT_EQ(gnuplot_lines("one two three", 8), "\"one two\" . \"\\n\" . \"three\"");
  EXPECT_EQ(gnuplot_lines("unbreakable", 4), "\"unbreakable\"");
  EXPECT_EQ(gnuplot_lines("", 4), "\"\"");
}

}  // namespace
}  // namespace millrace::study
