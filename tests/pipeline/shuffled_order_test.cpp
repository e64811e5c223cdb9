// Tests permutations, shuffles and the order of samples.
#include "pipeline/loader/shuffled_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/permutation.h"
#include "millrace/error.h"
#include "pipeline/loader/slice.h"

namespace millrace::pipeline {
namespace {

std::vector<std::uint64_t> order(std::uint64_t count, const char* shuffle, std::uint64_t seed = 1,
                                 std::uint32_t epoch = 0) {
  const ShuffledOrder sampler(count, Shuffle::parse(shuffle), seed, epoch);
  std::vector<std::uint64_t> all(count);
  for (std::uint64_t i = 0; i < count; ++i) all[i] = sampler(i);
  return all;
}

bool is_permutation_of_all(std::vector<std::uint64_t> values) {
  std::sort(values.begin(), values.end());
  for (std::uint64_t i = 0; i < values.size(); ++i)
    if (values[i] != i) return false;
  return true;
}

TEST(Permutation, IsOneForEverySizeAndHasItsInverse) {
  for (std::uint64_t count = 1; count < 300; ++count) {
    const base::Permutation permutation(count, count * 77);
    std::vector<std::uint64_t> all(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      all[i] = permutation(i);
      ASSERT_EQ(permutation.inverse(all[i]), i) << "of " << count;
    }
    ASSERT_TRUE(is_permutation_of_all(all)) << "of " << count;
  }
}

TEST(Permutation, SpreadsNeighbours) {
  // The mean distance of neighbours in a random order of n is (n + 1) / 3.
  const auto all = order(60000, "global");
  double sum = 0;
  for (std::size_t i = 1; i < all.size(); ++i)
    sum += std::abs(static_cast<double>(all[i]) - static_cast<double>(all[i - 1]));
  EXPECT_NEAR(sum / 59999, 20000, 200);
}

TEST(Permutation, EveryPlaceIsEquallyLikely) {
  // Counts the positions of sample 0 of 16 over many seeds.
  std::vector<int> counts(16);
  for (std::uint64_t seed = 0; seed < 16000; ++seed)
    ++counts[ShuffledOrder(16, Shuffle::parse("global"), seed, 0)(0)];
  double chi2 = 0;
  for (const int count : counts) chi2 += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi2, 37.7);  // 15 degrees of freedom, p = 0.001
}

TEST(ShuffledOrder, EpochsAndSeedsDiffer) {
  const auto base = order(1000, "global", 1, 0);
  EXPECT_TRUE(is_permutation_of_all(base));
  EXPECT_EQ(base, order(1000, "global", 1, 0));
  EXPECT_NE(base, order(1000, "global", 1, 1));
  EXPECT_NE(base, order(1000, "global", 2, 0));
}

TEST(ShuffledOrder, NoneIsTheOrderOfTheData) {
  EXPECT_EQ(order(5, "none"), (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
}

TEST(ShuffledOrder, WindowsStayTogetherWhereverTheShortOneLands) {
  for (std::uint64_t count : {1u, 7u, 16u, 17u, 100u, 1003u}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto all = order(count, "window:16", seed);
      ASSERT_TRUE(is_permutation_of_all(all)) << count << " seed " << seed;
      int changes = 0;  // changes of window from one position to the next
      for (std::size_t i = 1; i < all.size(); ++i) changes += all[i] / 16 != all[i - 1] / 16;
      ASSERT_EQ(changes, static_cast<int>((count + 15) / 16) - 1) << count << " seed " << seed;
    }
  }
  EXPECT_NE(order(64, "window:16", 1), order(64, "window:16", 2));
}

TEST(ShuffledOrder, AWindowLargerThanTheSetIsTheSet) {
  EXPECT_TRUE(is_permutation_of_all(order(100, "window:18446744073709551615")));
  EXPECT_TRUE(is_permutation_of_all(order(100, "window:101")));
}

TEST(ShuffledOrder, KeepsNoListOfSamples) {
  static_assert(std::is_trivially_copyable_v<ShuffledOrder> && sizeof(ShuffledOrder) <= 128);
  constexpr std::uint64_t kCount = 100'000'000;
  constexpr std::int64_t kBatch = 1000;
  for (const char* shuffle : {"global", "window:100000"}) {
    // A batch in the middle is found without those before it, and its ranks share it.
    const ShuffledOrder sampler(kCount, Shuffle::parse(shuffle), 1, 3);
    std::vector<std::uint64_t> whole, by_ranks;
    for (std::int64_t i = 0; i < kBatch; ++i)
      whole.push_back(sampler(kCount / 2 + static_cast<std::uint64_t>(i)));
    for (int rank = 0; rank < 3; ++rank) {
      const Slice slice = rank_slice(kBatch, rank, 3, 1);
      const ShuffledOrder own(kCount, Shuffle::parse(shuffle), 1, 3);
      for (std::int64_t i = slice.first; i < slice.first + slice.count; ++i)
        by_ranks.push_back(own(kCount / 2 + static_cast<std::uint64_t>(i)));
    }
    EXPECT_EQ(by_ranks, whole) << shuffle;
    std::sort(whole.begin(), whole.end());
    EXPECT_EQ(std::unique(whole.begin(), whole.end()), whole.end()) << shuffle;
    EXPECT_LT(whole.back(), kCount);
  }
}

TEST(Shuffle, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"", "globl", "window", "window:", "window:0", "window:x", "window:-3"})
    EXPECT_THROW(Shuffle::parse(text), UsageError) << text;
}

}  // namespace
}  // namespace millrace::pipeline
