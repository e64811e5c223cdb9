#include "study/sweep.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "pipeline/error.h"

namespace millrace {
namespace {

TEST(Sweep, CommasInsideBracketsDontSeparate) {
  EXPECT_EQ(parse_axis("loader.workers=0,1,2").values, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(parse_axis("output.mean=[1,2,3],[4,5,6]").values,
            (std::vector<std::string>{"[1,2,3]", "[4,5,6]"}));
  EXPECT_THROW(parse_axis("a=1,,2"), UsageError);
  EXPECT_THROW(parse_axis("a="), UsageError);
}

TEST(Sweep, TheGridVariesTheLastAxisFastest) {
  const auto cells = grid({{"a", {"1", "2"}}, {"b", {"x", "y", "z"}}});
  ASSERT_EQ(cells.size(), 6u);
  EXPECT_EQ(cells[0], (std::vector<std::string>{"a=1", "b=x"}));
  EXPECT_EQ(cells[5], (std::vector<std::string>{"a=2", "b=z"}));
  EXPECT_EQ(grid({}).size(), 1u);
}

TEST(Sweep, ABlockHoldsEveryCellOnceInItsOwnOrder) {
  const auto runs = interleaved(6, 4, 1);
  ASSERT_EQ(runs.size(), 24u);
  std::set<std::vector<std::size_t>> orders;
  for (std::size_t block = 0; block < 4; ++block) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(runs[block * 6 + i].repeat, block);
      order.push_back(runs[block * 6 + i].cell);
    }
    orders.insert(order);
    EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), 6u);
  }
  EXPECT_GT(orders.size(), 1u);
}

TEST(Sweep, TheTableComparesWithinBlocks) {
  const SweepFigures slow{0.002, 0.001, 2, 1, 3, 100, 0.5, 1};
  SweepFigures fast = slow;
  fast.images_per_s = 200;
  SweepFigures twice_as_fast_machine = slow, twice_fast = fast;
  twice_as_fast_machine.images_per_s = 200;
  twice_fast.images_per_s = 400;
  const auto rows =
      sweep_table({{"loader.workers", {"0", "1"}}, {"seed", {"1"}}},
                  {{slow, twice_as_fast_machine}, {fast, twice_fast}}, "images_per_s");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0][0], "loader.workers");
  EXPECT_EQ(rows[1].back(), "1.000");
  EXPECT_EQ(rows[2].back(), "2.000");
  EXPECT_EQ(rows[2][7], "300 [200 .. 400]");
  EXPECT_THROW(sweep_table({}, {}, "speed"), UsageError);
}

}  // namespace
}  // namespace millrace
