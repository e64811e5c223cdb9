// Tests the random numbers against published values, and their keys.
#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace millrace::pipeline {
namespace {

using Words = std::array<std::uint32_t, 4>;

void expect_block(Words counter, std::array<std::uint32_t, 2> key, Words expected) {
  millrace_rng rng{{key[0], key[1]}, {counter[0], counter[1], counter[2], counter[3]}, {}, 4};
  for (const std::uint32_t word : expected) EXPECT_EQ(millrace_rng_bits(&rng), word);
}

// Known answers published with Random123 (kat_vectors, philox4x32 10).
TEST(Philox, GivesThePublishedAnswers) {
  expect_block({0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_block({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

std::uint64_t first_two(Draw draw) {
  const std::uint64_t high = draw.bits();
  return high << 32 | draw.bits();
}

TEST(Draw, DependsOnEveryPartOfTheKeyAndOnNothingElse) {
  const SampleKey key{7, 3, 11};
  std::set<std::uint64_t> seen{first_two(Draw(base::stream(key, base::op_id("hflip"))))};
  EXPECT_FALSE(seen.insert(first_two(Draw(base::stream(key, base::op_id("hflip"))))).second);
  EXPECT_TRUE(seen.insert(first_two(Draw(base::stream({8, 3, 11}, base::op_id("hflip"))))).second);
  EXPECT_TRUE(seen.insert(first_two(Draw(base::stream({7, 4, 11}, base::op_id("hflip"))))).second);
  EXPECT_TRUE(seen.insert(first_two(Draw(base::stream({7, 3, 12}, base::op_id("hflip"))))).second);
  EXPECT_TRUE(
      seen.insert(first_two(Draw(base::stream({7, 3, 11 + (1ull << 40)}, base::op_id("hflip")))))
          .second);
  EXPECT_TRUE(seen.insert(first_two(Draw(base::stream(key, base::op_id("hflip#2"))))).second);
}

TEST(Draw, MoreThanABlockDoesNotRepeat) {
  Draw draw(base::stream({1, 2, 3}, 4));
  std::set<std::uint32_t> values;
  for (int i = 0; i < 64; ++i) values.insert(draw.bits());
  EXPECT_EQ(values.size(), 64u);
}

TEST(Draw, UniformFillsItsRangeEvenly) {
  int buckets[10] = {};
  for (std::uint64_t sample = 0; sample < 10000; ++sample) {
    const double value = Draw(base::stream({5, 0, sample}, base::op_id("test"))).uniform(-2, 3);
    ASSERT_GE(value, -2);
    ASSERT_LT(value, 3);
    ++buckets[static_cast<int>((value + 2) * 2)];
  }
  double chi2 = 0;
  for (const int count : buckets) chi2 += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi2, 27.9);  // 9 degrees of freedom, p = 0.001; the draws are fixed, so it never flips
}

TEST(Draw, IntegerStaysInsideAndReachesBothEnds) {
  std::set<std::uint32_t> values;
  for (std::uint64_t sample = 0; sample < 500; ++sample)
    values.insert(Draw(base::stream({5, 1, sample}, 9)).integer(9));
  EXPECT_EQ(values.size(), 9u);
  EXPECT_EQ(*values.rbegin(), 8u);
}

}  // namespace
}  // namespace millrace::pipeline
