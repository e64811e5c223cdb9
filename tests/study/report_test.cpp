// Writers of reports: no text from data becomes markup, script or another column.
#include "study/report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "millrace/error.h"
#include "recipe/recipe_file.h"
#include "study/records/run_directory.h"
#include "study/report/figures.h"

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;

/// Names that would do harm if they were not escaped.
const std::string kNames[] = {
    "</script><script>window.planted=1</script>",
    "\"><img src=x onerror=window.planted=1>",
    "<!--<script>",
    "a, \"b\"\nc|d",
    "line\xe2\x80\xa8separator",
    "not UTF-8: \xff\xfe",
    "=1+1",
};

Report planted() {
  Report report{.title = kNames[0], .verdict = kNames[1]};
  for (const std::string& name : kNames) {
    report.facts.emplace_back(name, name);
    report.notes.push_back(name);
  }
  const std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  Figure bars{.id = "bars", .title = kNames[0], .caption = kNames[2], .kind = FigureKind::bar};
  bars.x_label = kNames[1];
  bars.categories = names;
  bars.series = {{.name = kNames[0], .y = {1, 2, NAN, 4, INFINITY, 6, 7}}};
  Figure matrix{.id = "matrix", .title = "m", .kind = FigureKind::matrix, .categories = names};
  for (const std::string& name : names)
    matrix.series.push_back({.name = name, .y = {1, 0, 0, 3, 0, 0, 5}});
  report.figures = {bars, matrix};
  report.tables = {{.id = "table", .title = kNames[1], .header = names, .rows = {names}}};
  report.images = {{.id = "image", .title = kNames[1], .png = "\x89PNG"}};
  return report;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

/// A reader of RFC 4180.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      rows.back().back() += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      rows.back().emplace_back();
    } else if (c == '\n' && !quoted) {
      if (i + 1 < text.size()) rows.push_back({""});
    } else {
      rows.back().back() += c;
    }
  }
  return rows;
}

TEST(ReportHtml, ShowsNamesAndRunsNoneOfThem) {
  const std::string html = to_html(planted());
  EXPECT_EQ(count_of(html, "</script"), 3u) << "the figures, Chart.js, our own script";
  EXPECT_EQ(count_of(html, "<script"), 3u);
  EXPECT_EQ(count_of(html, "<img"), 1u) << "the picture";
  EXPECT_EQ(count_of(html, "<!--"), 0u);
  EXPECT_EQ(html.find("\xe2\x80\xa8separator\""), std::string::npos) << "raw in the JSON";
  EXPECT_EQ(html.find('\xff'), std::string::npos);
  EXPECT_NE(html.find("&lt;/script&gt;&lt;script&gt;window.planted=1"), std::string::npos);

  const std::string mark = "id=\"report-figures\">";
  const std::size_t begin = html.find(mark) + mark.size();
  const Json figures = Json::parse(html.substr(begin, html.find("</script", begin) - begin));
  ASSERT_EQ(figures.size(), 1u) << "a matrix is a table";
  EXPECT_EQ(figures[0]["categories"][0], kNames[0]);
  EXPECT_EQ(figures[0]["categories"][4], kNames[4]);
  EXPECT_TRUE(figures[0]["series"][0]["y"][2].is_null()) << "NaN";
  EXPECT_TRUE(figures[0]["series"][0]["y"][4].is_null()) << "infinity";
}

TEST(ReportHtml, NeedsNothingElseAndKeepsTheLicence) {
  const std::string html = to_html(planted());
  EXPECT_NE(html.find("Released under the MIT License"), std::string::npos);
  EXPECT_NE(html.find("Chart.js v3"), std::string::npos);
  // Attributes that would fetch something; the planted ones are escaped.
  const std::string page = html.substr(0, html.find("id=\"report-figures\""));
  for (const std::string attribute : {" src=\"", " href=\""})
    for (std::size_t at = 0; (at = page.find(attribute, at)) != std::string::npos;) {
      at += attribute.size();
      const std::string to = page.substr(at, 40);
      EXPECT_TRUE(to.starts_with("#") || to.starts_with("data:image/png;base64,")) << to;
    }
  EXPECT_EQ(page.find("url("), std::string::npos);
  EXPECT_EQ(page.find("@import"), std::string::npos);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(ReportCsv, IsReadBackAsItWas) {
  const Report report = planted();
  const auto table = parse_csv(to_csv(report.tables[0]));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0], report.tables[0].header);
  EXPECT_EQ(table[1], report.tables[0].header);
  const auto bars = parse_csv(to_csv(report.figures[0]));
  ASSERT_EQ(bars.size(), 8u);
  EXPECT_EQ(bars[0], (std::vector<std::string>{kNames[1], kNames[0]}));
  EXPECT_EQ(bars[4], (std::vector<std::string>{kNames[3], "4"}));
  EXPECT_EQ(bars[3][1], "") << "NaN";
  const auto matrix = parse_csv(to_csv(report.figures[1]));
  ASSERT_EQ(matrix.size(), 8u);
  EXPECT_EQ(matrix[1][7], "5");
}

TEST(ReportCsv, IntervalsAreColumnsAndOtherXAreRows) {
  Figure figure{.id = "f", .kind = FigureKind::line, .x_label = "epoch", .y_label = "loss"};
  figure.series = {{.name = "a", .x = {1, 2}, .y = {0.1, 3}, .low = {0, 2}, .high = {1, 4}},
                   {.name = "b", .x = {1, 2}, .y = {5, 6}}};
  EXPECT_EQ(to_csv(figure), "epoch,a,a low,a high,b\n1,0.1,0,1,5\n2,3,2,4,6\n");
  figure.series[1].x = {1, 3};
  EXPECT_EQ(to_csv(figure),
            "series,epoch,loss,low,high\na,1,0.1,0,1\na,2,3,2,4\nb,1,5,,\nb,3,6,,\n");
}

TEST(ReportMarkdown, ARowStaysARow) {
  const std::string text = to_markdown(planted());
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos; ++at)
    EXPECT_EQ(text[at - 1], '\\') << text.substr(at, 20);
  EXPECT_NE(text.find("a, \"b\" c\\|d"), std::string::npos) << text;
  // Every line of the table has the same number of cells.
  const std::size_t begin = text.rfind("## ");
  std::istringstream lines(text.substr(begin));
  std::size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|")) continue;
    ++rows;
    EXPECT_EQ(count_of(line, "|") - count_of(line, "\\|"), 8u) << line;
  }
  EXPECT_EQ(rows, 3u);
}

TEST(ReportMarkdown, LongLinesAreShownByTheirRange) {
  Figure figure{.id = "f", .title = "Long", .x_label = "step", .y_label = "ms"};
  figure.series.push_back({.name = "load"});
  for (int i = 0; i < 300; ++i) {
    figure.series[0].x.push_back(i);
    figure.series[0].y.push_back(i == 7 ? NAN : i);
  }
  const std::string text = to_markdown({.title = "t", .figures = {figure}});
  EXPECT_NE(text.find("| load | 299 | 0 | 0 | 150 | 299 | 299 |"), std::string::npos) << text;
}

TEST(ReportMarkdown, EscapesWhatMarkdownWouldTake) {
  EXPECT_EQ(markdown_escaped("load_s_per_step"), "load_s_per_step");
  EXPECT_EQ(markdown_escaped("_x_"), "\\_x\\_");
  EXPECT_EQ(markdown_escaped("*x* `y` <b>"), "\\*x\\* \\`y\\` \\<b\\>");
  EXPECT_EQ(markdown_escaped("[x](javascript:y)"), "[x\\](javascript:y)");
  EXPECT_EQ(markdown_escaped("1.2 [1.1 .. 1.3]"), "1.2 [1.1 .. 1.3]");
  EXPECT_EQ(markdown_escaped("# x\ny"), "\\# x y");
}

TEST(ReportEscape, Base64OfTheStandard) {  // RFC 4648, section 10
  const char* pairs[][2] = {{"", ""},
                            {"f", "Zg=="},
                            {"fo", "Zm8="},
                            {"foo", "Zm9v"},
                            {"foob", "Zm9vYg=="},
                            {"fooba", "Zm9vYmE="},
                            {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : pairs) EXPECT_EQ(base64(bytes), text);
  EXPECT_EQ(base64(std::string("\0\xff\x10", 3)), "AP8Q");
}

TEST(ReportEscape, ScriptJsonIsTheSameJson) {
  const Json json{{"a", kNames[0]}, {"b", kNames[4] + "\xe2\x80\xa9"}, {"c", "x & y"}};
  const std::string safe = script_json(to_text(json));
  EXPECT_EQ(safe.find_first_of("<>&"), std::string::npos);
  EXPECT_EQ(safe.find("\xe2\x80"), std::string::npos);
  EXPECT_EQ(Json::parse(safe), json);
}

TEST(ReportEscape, WhatIsNotUtf8IsReplaced) {
  EXPECT_EQ(clean_utf8("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(clean_utf8("a\xff"
                       "b"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(clean_utf8("cut \xc3"), "cut \xef\xbf\xbd");
  EXPECT_EQ(clean_utf8(std::string("x\0y", 3)), "x\xef\xbf\xbdy");
}

TEST(ReportJson, HoldsAllOfIt) {
  const Json json = to_json(planted());
  EXPECT_EQ(json["title"], kNames[0]);
  EXPECT_EQ(json["facts"].size(), 7u);
  EXPECT_EQ(json["figures"][1]["kind"], "matrix");
  EXPECT_EQ(json["images"][0]["png_base64"], "iVBORw==");
  EXPECT_NO_THROW(Json::parse(to_text(json)));
}

TEST(RecipeValues, AreFlatAndInOrder) {
  const auto values = recipe::recipe_values(
      "seed = 3\n[loader]\nworkers = 2\nbatch = 64\n[data.storage]\nlatency = 0.1\n"
      "[[augment]]\nop = \"affine\"\nid = \"first\"\np = 0.5\n[[augment]]\nop = \"hflip\"\n",
      "config.toml");
  const std::vector<std::pair<std::string, std::string>> expected{
      {"seed", "3"},
      {"loader.workers", "2"},
      {"loader.batch", "64"},
      {"data.storage.latency", "0.1"},
      {"augment", "first, hflip"},
      {"augment.first.op", "\"affine\""},
      {"augment.first.id", "\"first\""},
      {"augment.first.p", "0.5"},
      {"augment.hflip.op", "\"hflip\""}};
  EXPECT_EQ(values, expected);
  EXPECT_THROW(recipe::recipe_values("seed = ", "config.toml"), DataError);
  EXPECT_TRUE(recipe::recipe_values("augment = []\n", "x")[0].second == "[]");
}

TEST(ConfigTable, ShowsOnlyWhatDiffers) {
  const ReportTable table =
      config_table({{"one", {{"recipe", "a"}, {"seed", "0"}, {"workers", "1"}}},
                    {"two", {{"recipe", "b"}, {"seed", "0"}, {"workers", "2"}, {"new", "x"}}}});
  EXPECT_EQ(table.header, (std::vector<std::string>{"key", "one", "two"}));
  EXPECT_EQ(table.rows,
            (std::vector<std::vector<std::string>>{{"workers", "1", "2"}, {"new", "-", "x"}}));
  EXPECT_TRUE(config_table({{"one", {{"seed", "0"}}}, {"two", {{"seed", "0"}}}}).rows.empty());
}

}  // namespace
}  // namespace millrace::study
