// Designs of sweeps: which combinations, in which order.
#include "study/sweep/design.h"

#include <gtest/gtest.h>

#include <set>

#include "millrace/error.h"

namespace millrace::study {
namespace {

using Words = std::vector<std::string>;

TEST(Design, CommasInsideBracketsDontSeparate) {
  EXPECT_EQ(parse_axis("loader.workers=0,1,2").values, (Words{"0", "1", "2"}));
  EXPECT_EQ(parse_axis("output.mean=[1,2,3],[4,5,6]").values, (Words{"[1,2,3]", "[4,5,6]"}));
  EXPECT_THROW(parse_axis("a=1,,2"), UsageError);
  EXPECT_THROW(parse_axis("a="), UsageError);
}

TEST(Design, TheGridVariesTheLastAxisFastest) {
  const SweepDesign design = grid_design({{"a", {"1", "2"}}, {"b", {"x", "y", "z"}}, {"c", {"0"}}});
  ASSERT_EQ(design.cells.size(), 6u);
  EXPECT_EQ(design.columns, (Words{"a", "b"}));
  EXPECT_EQ(design.cells[0].overrides, (Words{"a=1", "b=x", "c=0"}));
  EXPECT_EQ(design.cells[5].overrides, (Words{"a=2", "b=z", "c=0"}));
  EXPECT_EQ(design.cells[5].labels, (Words{"2", "z"}));
}

TEST(Design, OneCombinationHasARowAllTheSame) {
  for (const SweepDesign& design : {grid_design({}), paired_design({{"a", {"1"}}})}) {
    ASSERT_EQ(design.cells.size(), 1u);
    EXPECT_EQ(design.columns.size(), design.cells[0].labels.size());
    EXPECT_EQ(design.columns.size(), 1u);
  }
}

TEST(Design, PairedValuesGoTogether) {
  const SweepDesign design =
      paired_design({{"loader.batch", {"64", "128"}}, {"seed", {"7"}}, {"train.lr", {"1", "2"}}});
  ASSERT_EQ(design.cells.size(), 2u);
  EXPECT_EQ(design.cells[1].overrides, (Words{"loader.batch=128", "seed=7", "train.lr=2"}));
  EXPECT_EQ(design.cells[1].labels, (Words{"128", "2"}));
  EXPECT_THROW(paired_design({{"a", {"1", "2"}}, {"b", {"1", "2", "3"}}}), UsageError);
}

TEST(Design, AListIsTakenAsItIs) {
  const SweepDesign design =
      list_design({{"seed", {"7"}}}, {"", "a=1 b=[1, 2]", "augment+=hflip{p=1, id=x}"});
  ASSERT_EQ(design.cells.size(), 3u);
  EXPECT_EQ(design.cells[0].overrides, (Words{"seed=7"}));
  EXPECT_EQ(design.cells[0].labels, (Words{"(recipe)"}));
  EXPECT_EQ(design.cells[1].overrides, (Words{"seed=7", "a=1", "b=[1, 2]"}));
  EXPECT_EQ(design.cells[2].overrides.size(), 2u);
  EXPECT_THROW(list_design({{"a", {"1", "2"}}}, {""}), UsageError);
  EXPECT_THROW(list_design({}, {"workers"}), UsageError);
}

TEST(Design, ShortNamesTellKeysApart) {
  EXPECT_EQ(short_names({"loader.workers", "seed"}), (Words{"workers", "seed"}));
  EXPECT_EQ(short_names({"augment.random_affine.enabled", "augment.hflip.enabled"}),
            (Words{"random_affine.enabled", "hflip.enabled"}));
  EXPECT_EQ(short_names({"loader.batch", "eval.batch"}), (Words{"loader.batch", "eval.batch"}));
  EXPECT_EQ(short_names({"augment.hflip.p", "eval.augment.hflip.p"}),
            (Words{"augment.hflip.p", "eval.augment.hflip.p"}));
}

TEST(Design, ABlockHoldsEveryCellOnceInItsOwnOrder) {
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

TEST(Design, EveryCellComesEverywhereInABlock) {
  // 600 blocks of 3: each cell comes first about 200 times; 5 standard deviations are 58.
  std::vector<int> first(3);
  for (const SweepRun& run : interleaved(3, 600, 11)) {
    static std::uint64_t block = ~std::uint64_t{0};
    if (run.repeat != block) ++first[run.cell];
    block = run.repeat;
  }
  for (const int count : first) EXPECT_NEAR(count, 200, 58);
}

TEST(Design, MoreRepeatsOnlyAddBlocks) {
  const auto few = interleaved(5, 3, 9), many = interleaved(5, 8, 9);
  for (std::size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(few[i].cell, many[i].cell);
    EXPECT_EQ(few[i].repeat, many[i].repeat);
  }
}

}  // namespace
}  // namespace millrace::study
