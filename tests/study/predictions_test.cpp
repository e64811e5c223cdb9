// Tables of predictions: the most confidently wrong images, names of any kind, damaged files.
#include "millrace/error.h"
#include "study/report/report.h"
#include "study/report/reports.h"
#include "tests/study/report_files.h"

namespace millrace::report_test {
namespace {

constexpr const char* kHeader = "name,label,predicted,probability\n";

TEST(Predictions, TheMostConfidentlyWrongComeFirst) {
  const Folder run;
  run.write("p.csv", std::string(kHeader) +
                         "a,1,1,0.99\nb,1,2,0.5\nc,2,1,0.9\nd,3,1,0.7\ne,3,3,1\nf,1,3,0.9\n");
  const study::Predictions all = study::read_predictions(run.path() / "p.csv", 3);
  EXPECT_EQ(all.images, 6u);
  EXPECT_EQ(all.wrong, 4u);
  ASSERT_EQ(all.confident.size(), 3u);
  EXPECT_EQ(all.confident[0].name, "c");
  EXPECT_EQ(all.confident[0].row, 2u);
  EXPECT_EQ(all.confident[1].name, "f") << "as confident, but later";
  EXPECT_EQ(all.confident[2].name, "d");
  EXPECT_EQ(all.confident[2].label, "3");
  EXPECT_EQ(all.confident[2].predicted, "1");
  EXPECT_EQ(all.confident[2].probability, 0.7);
}

TEST(Predictions, NamesOfAnyKindComeBack) {
  const std::string odd = "a \"b\", \nc<script>";
  const Folder run;
  run.write("p.csv", kHeader + study::csv_field(odd) + "," + study::csv_field("x,y") + ",z,0.5");
  const study::Predictions all = study::read_predictions(run.path() / "p.csv", 5);
  ASSERT_EQ(all.confident.size(), 1u) << "the last row needs no line break";
  EXPECT_EQ(all.confident[0].name, odd);
  EXPECT_EQ(all.confident[0].label, "x,y");
}

TEST(Predictions, NoNumberIsNoConfidence) {
  const Folder run;
  run.write("p.csv", std::string(kHeader) + "a,1,2,nan\nb,1,2,0.25\n");
  const study::Predictions all = study::read_predictions(run.path() / "p.csv", 5);
  ASSERT_EQ(all.confident.size(), 2u) << "a model whose loss diverged gives nan";
  EXPECT_EQ(all.confident[0].name, "b");
  EXPECT_EQ(all.confident[1].probability, 0);
}

TEST(Predictions, DamagedFilesAreNamedWithTheRow) {
  const Folder run;
  const auto refuses = [&](const std::string& text, const std::string& where) {
    run.write("p.csv", text);
    try {
      study::read_predictions(run.path() / "p.csv", 5);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(where + " is damaged"), std::string::npos)
          << error.what();
    }
  };
  refuses("", "p.csv");
  refuses("name,label\n", "p.csv");
  refuses(std::string(kHeader) + "a,1,1,0.5\nb,1,2\n", "p.csv, row 2");
  refuses(std::string(kHeader) + "a,1,2,1.5\n", "p.csv, row 1");
  refuses(std::string(kHeader) + "a,1,2,half\n", "p.csv, row 1");
}

TEST(ReportHtml, PicturesStandAboveTheirRowsAndNamesAreEscaped) {
  study::ReportTable table{
      .id = "sheet",
      .title = "Sheet",
      .header = {"image", "label", "predicted"},
      .rows = {{"\"><img src=x>", "<b>1</b>", "2"}, {"n", "3", "4"}},
      .pictures = {study::base64("\xff\xd8one"), study::base64("\xff\xd8two")}};
  const std::string html = study::to_html({.title = "run", .tables = {table}});
  EXPECT_NE(html.find("<ul class=\"sheet\">"), std::string::npos);
  EXPECT_NE(html.find("src=\"data:image/jpeg;base64," + study::base64("\xff\xd8two") + "\""),
            std::string::npos);
  EXPECT_NE(html.find("<div>label <b>&lt;b&gt;1&lt;/b&gt;</b></div>"), std::string::npos);
  EXPECT_NE(html.find("alt=\"label 3, predicted 4\""), std::string::npos);
  EXPECT_EQ(html.find("<img src=x>"), std::string::npos);
  table.pictures.clear();
  const std::string plain = study::to_html({.title = "run", .tables = {table}});
  EXPECT_EQ(plain.find("<ul class=\"sheet\">"), std::string::npos) << "without pictures, a table";
  EXPECT_NE(plain.find("<td>4</td>"), std::string::npos);
}

}  // namespace
}  // namespace millrace::report_test
