// Which keys of many runs become columns.
#include "study/report/run_columns.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace::report_test {
namespace {

using study::ReportTable;
using study::RunColumns;
using Names = std::vector<std::string>;

/// Returns a config_table() of runs 1, 2, ... with these rows.
ReportTable table_of(std::vector<std::vector<std::string>> rows) {
  ReportTable table{.header = {"key"}};
  for (std::size_t run = 1; run < rows.front().size(); ++run)
    table.header.push_back(std::to_string(run));
  table.rows = std::move(rows);
  return table;
}

RunColumns columns_of(std::vector<std::vector<std::string>> rows,
                      const std::vector<std::vector<double>>& results = {}, std::size_t most = 8) {
  return study::run_columns(table_of(std::move(rows)), results, most);
}

TEST(RunColumns, StandInTheOrderOfWhatPeopleVary) {
  const RunColumns columns =
      columns_of({{"seed", "1", "2", "3", "4"},
                  {"resample", "\"once\"", "\"once\"", "\"each\"", "\"each\""},
                  {"train.strategy", "\"single\"", "\"ddp\"", "\"ddp\"", "\"single\""},
                  {"augment", "flip", "flip", "crop, flip", "crop, flip"},
                  {"loader.workers", "0", "1", "2", "4"},
                  {"train.epochs", "1", "1", "2", "2"},
                  {"train.lr", "0.1", "0.2", "0.1", "0.2"},
                  {"loader.batch", "32", "64", "32", "64"},
                  {"data.path", "\"a\"", "\"b\"", "\"a\"", "\"b\""},
                  {"model.name", "\"x\"", "\"x\"", "\"y\"", "\"y\""}});
  EXPECT_EQ(columns.keys, (Names{"model.name", "data.path", "loader.batch", "train.lr",
                                 "train.epochs", "loader.workers", "augment", "train.strategy"}));
  EXPECT_EQ(columns.cells[0], (Names{"x", "a", "32", "0.1", "1", "0", "flip", "single"}));
  EXPECT_EQ(columns.rest[1], "seed=2, resample=once");
}

TEST(RunColumns, AKeyThatExplainsAResultIsShownAndOthersAreNot) {
  const std::vector<std::vector<std::string>> rows{{"seed", "1", "2", "3", "4", "5", "6"},
                                                   {"train.cudnn", "a", "b", "a", "b", "a", "b"},
                                                   {"resample", "x", "x", "y", "y", "y", "y"}};
  EXPECT_EQ(columns_of(rows, {{90, 91, 50, 51, 49, 50}}).keys, Names{"resample"});
  EXPECT_EQ(columns_of(rows, {{90, 51, 90, 50, 91, 49}}).keys, Names{"train.cudnn"});
  EXPECT_EQ(columns_of(rows, {{NAN, NAN, NAN, NAN, NAN, 3}}).keys, Names{}) << "no result";
  EXPECT_EQ(columns_of(rows, {{7, 7, 7, 7, 7, 7}}).keys, Names{}) << "nothing to explain";
}

TEST(RunColumns, OneOddRunDoesNotChangeThoseOfTheOthers) {
  std::vector<std::vector<std::string>> rows{{"loader.workers", "0", "1", "2", "0", "1"}};
  const RunColumns before = columns_of(rows);
  rows[0].push_back("2");
  for (const char* key : {"plugins.path", "model.name", "train.lr", "output.mean", "decode.scale",
                          "resample", "loader.prefetch"})
    rows.push_back({key, "usual", "usual", "usual", "usual", "usual", "odd"});
  const RunColumns after = columns_of(rows, {{1, 1, 1, 1, 1, 9}});
  EXPECT_EQ(after.keys, before.keys);
  EXPECT_EQ(after.rest[0], "");
  EXPECT_NE(after.rest[5].find("train.lr=odd"), std::string::npos) << after.rest[5];
  EXPECT_NE(after.rest[5].find(" and 2 more"), std::string::npos) << after.rest[5];
}

TEST(RunColumns, OfTwoRunsAreAllKeysUpToTheMost) {
  const std::vector<std::vector<std::string>> rows{
      {"seed", "1", "2"}, {"resample", "x", "y"}, {"train.lr", "1", "2"}};
  EXPECT_EQ(columns_of(rows).keys, (Names{"train.lr", "seed", "resample"}));
  const RunColumns two = columns_of(rows, {}, 2);
  EXPECT_EQ(two.keys, (Names{"train.lr", "seed"}));
  EXPECT_EQ(two.rest, (Names{"resample=x", "resample=y"}));
}

TEST(RunColumns, ParametersOfAnAugmentationThatSomeRunsLackAreSaidByTheChain) {
  const RunColumns columns = columns_of(
      {{"augment", "hflip", "hflip", "-", "-"}, {"augment.hflip.p", "0.5", "0.7", "-", "-"}});
  EXPECT_EQ(columns.keys, Names{"augment"});
  EXPECT_EQ(columns.rest, (Names{"", "", "", ""}));
}

}  // namespace
}  // namespace millrace::report_test
