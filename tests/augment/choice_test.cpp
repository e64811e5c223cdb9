// Tests units that choose others: which ones, how often, and with which parameters.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "augment/ops/auto_augment_policies.h"
#include "augment/ops/geometry.h"
#include "tests/augment/one_unit.h"
#include "tests/pipeline/allocations.h"

namespace millrace::augment {
namespace {

TEST(RandomApply, AllOrNothing) {
  OneUnit unit("random_apply{p=0.3,ops=gaussian_blur{kernel_size=3,sigma=[0.1,2]}; hflip;invert}");
  ASSERT_EQ(unit.unit().children().size(), 3u);
  EXPECT_STREQ(unit.unit().children()[0]->table().name, "gaussian_blur");
  int applied = 0;
  for (std::uint64_t sample = 0; sample < 4000; ++sample) {
    const auto chosen = unit.choose(sample);
    ASSERT_EQ(chosen.size(), unit.drawn("applied") == 1 ? 3u : 0u);
    for (std::size_t i = 0; i < chosen.size(); ++i)
      ASSERT_EQ(chosen[i], unit.unit().children()[i].get());
    applied += !chosen.empty();
  }
  EXPECT_NEAR(applied / 4000.0, 0.3, 0.037);
}

TEST(RandomApply, NestsAndDoesNothingByDefault) {
  OneUnit outer("random_apply{p=1,ops=random_apply{p=1,ops=invert{p=1};hflip};grayscale}");
  EXPECT_EQ(outer.choose(0).size(), 2u);
  EXPECT_EQ(outer.unit().children()[0]->children().size(), 2u);
  EXPECT_TRUE(OneUnit("random_apply{p=1}").choose(0).empty());
}

TEST(RandomApply, NestsToAnEnd) {
  const auto nested = [](int levels) {
    std::string text = "hflip";
    for (int i = 0; i < levels; ++i) text = "random_apply{ops=" + text + "}";
    return text;
  };
  EXPECT_EQ(OneUnit(nested(16)).unit().children().size(), 1u);
  try {
    OneUnit{nested(17)};
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("nested more than 16 deep"), std::string::npos)
        << error.what();
  }
}

TEST(RandAugment, EveryOperationIsEquallyFrequent) {
  const char* names[] = {"identity",  "shear_x",    "shear_y",      "translate_x", "translate_y",
                         "rotate",    "brightness", "saturation",   "contrast",    "sharpness",
                         "posterize", "solarize",   "autocontrast", "equalize"};
  for (const char* text : {"rand_augment{num_ops=1}", "trivial_augment"}) {
    OneUnit unit(text);
    std::map<std::string, int> seen;
    int negative = 0, with_sign = 0;
    constexpr int kCalls = 14000;
    for (int i = 0; i < kCalls; ++i) {
      unit.forget();
      const auto chosen = unit.choose(static_cast<std::uint64_t>(i));
      for (const char* name : names) {
        if (!unit.has_drawn(name)) continue;
        ++seen[name];
        EXPECT_EQ(chosen.size(), std::string(name) == "identity" ? 0u : 1u);
        if (std::string(name) == "rotate" && unit.drawn(name) != 0) {
          ++with_sign;
          negative += unit.drawn(name) < 0;
        }
      }
    }
    ASSERT_EQ(seen.size(), 14u) << text;
    for (const auto& [name, count] : seen) EXPECT_NEAR(count, kCalls / 14, 155) << text << name;
    EXPECT_NEAR(negative / static_cast<double>(with_sign), 0.5, 0.08) << text;
  }
}

/// Counts, over many samples, the draws of each sub-policy and the operations that it applies.
TEST(AutoAugment, DrawsSubPoliciesEquallyAndTheirStepsWithTheirProbabilities) {
  const char* policies[] = {"imagenet", "cifar10", "svhn"};
  for (std::size_t policy = 0; policy < 3; ++policy) {
    OneUnit unit(fmt::format("auto_augment{{policy={}}}", policies[policy]));
    constexpr int kCalls = 25000;
    std::array<int, kSubPolicies> drawn{}, applied{};
    for (std::uint64_t sample = 0; sample < kCalls; ++sample) {
      const std::size_t chosen = unit.choose(sample).size();
      const auto at = static_cast<std::size_t>(unit.drawn("sub_policy"));
      ASSERT_LT(at, drawn.size());
      ++drawn[at];
      applied[at] += static_cast<int>(chosen);
    }
    for (std::size_t at = 0; at < drawn.size(); ++at) {
      EXPECT_NEAR(drawn[at], kCalls / kSubPolicies, 155) << policies[policy] << " " << at;
      const SubPolicy& pair = kAutoAugmentPolicies[policy][at];
      EXPECT_NEAR(applied[at] / static_cast<double>(drawn[at]),
                  pair[0].probability + pair[1].probability, 0.11)
          << policies[policy] << " " << at;
    }
  }
}

TEST(AutoAugment, StrengthsHaveEitherSign) {
  OneUnit unit("auto_augment{policy=svhn}");
  int negative = 0, all = 0;
  for (std::uint64_t sample = 0; sample < 8000; ++sample) {
    unit.forget();
    unit.choose(sample);
    if (!unit.has_drawn("shear_y")) continue;
    ++all;
    negative += unit.drawn("shear_y") < 0;
  }
  ASSERT_GT(all, 1500);
  EXPECT_NEAR(negative / static_cast<double>(all), 0.5, 0.06);
}

TEST(RandAugment, TakesAsManyAsAskedFor) {
  OneUnit unit("rand_augment{num_ops=5}");
  std::size_t most = 0;
  for (std::uint64_t sample = 0; sample < 200; ++sample)
    most = std::max(most, unit.choose(sample).size());
  EXPECT_EQ(most, 5u);
  EXPECT_TRUE(OneUnit("rand_augment{num_ops=0}").choose(0).empty());
}

TEST(TrivialAugment, StrengthsAreUniform) {
  OneUnit unit("trivial_augment");
  std::map<int, int> bins;
  int all = 0;
  for (std::uint64_t sample = 0; sample < 60000; ++sample) {
    unit.forget();
    unit.choose(sample);
    if (!unit.has_drawn("rotate")) continue;
    ++bins[static_cast<int>(std::lround(std::abs(unit.drawn("rotate")) / 4.5))];
    ++all;
  }
  ASSERT_EQ(bins.size(), 31u);
  EXPECT_EQ(bins.rbegin()->first, 30);
  for (const auto& [bin, count] : bins) EXPECT_NEAR(count, all / 31.0, 60) << bin;
}

TEST(Choices, CallsAllocateNothing) {
  if (!pipeline::counts_allocations()) GTEST_SKIP() << "a sanitizer owns operator new";
  for (const char* text :
       {"auto_augment", "rand_augment", "trivial_augment", "random_apply{ops=hflip;invert}"}) {
    OneUnit unit(text);
    unit.silence();
    for (std::uint64_t sample = 0; sample < 200; ++sample) {
      const std::uint64_t before = pipeline::allocations();
      unit.choose_only(sample);
      ASSERT_EQ(pipeline::allocations(), before) << text;
    }
  }
}

Warp warp_of(const std::string& text, Size size) {
  OneUnit unit(text);
  plugins::CallContext context;
  Warp warp;
  plugins::checked_call(unit.unit().table(), context.call, [&] {
    return unit.unit().table().geometric->warp(unit.unit().self(), size, &warp, &context.call);
  });
  return warp;
}

TEST(Affine, IsTheMatrixOfItsParameters) {
  const Warp warp = warp_of(
      "affine{degrees=20,translate=[3,-4],scale=1.5,shear=[5,-6],center=[2,9],fill=[1,2,3],"
      "interpolation=bilinear}",
      {40, 30});
  const auto expected = inverse_affine({20, 3, -4, 1.5, 5, -6}, 2, 9);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(warp.map[i], expected[i]) << i;
  EXPECT_EQ(warp.fill[2], 3);
  EXPECT_EQ(warp.interpolation, MILLRACE_BILINEAR);
}

TEST(Affine, TurnsAboutTheMiddleByDefault) {
  const Warp warp = warp_of("affine{degrees=90}", {10, 6});
  EXPECT_NEAR(warp.map[0] * 5 + warp.map[1] * 3 + warp.map[2], 5, 1e-12);
  EXPECT_NEAR(warp.map[3] * 5 + warp.map[4] * 3 + warp.map[5], 3, 1e-12);
}

TEST(Affine, PartsOfTheSideAreCutOffToWholePixels) {
  // Output pixel x shows input x - shift.
  EXPECT_EQ(warp_of("affine{translate_part=[0.259,-0.259]}", {100, 50}).map[2], -25);
  EXPECT_EQ(warp_of("affine{translate_part=[0.259,-0.259]}", {100, 50}).map[5], 12);
  // 0.1 * 30 gives 3, although 0.1 is not exact in binary.
  EXPECT_EQ(warp_of("affine{translate_part=[0.1,0]}", {30, 30}).map[2], -3);
}

}  // namespace
}  // namespace millrace::augment
