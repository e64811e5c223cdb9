// Tests how samples are drawn: frequencies by exact bounds, batches by class, and repetition.
#include "pipeline/loader/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "millrace/error.h"
#include "tests/pipeline/numbered.h"

namespace millrace::pipeline {
namespace {

using Kind = SamplerOptions::Kind;

/// A data set of which only the labels are asked for.
class Labelled final : public Numbered {
 public:
  Labelled(std::vector<std::int64_t> labels, std::size_t classes)
      : Numbered(labels.size()), labels_(std::move(labels)) {
    info_.classes.resize(classes);
  }
  std::int64_t label(std::uint64_t index) const override { return labels_[index]; }

 private:
  std::vector<std::int64_t> labels_;
};

/// Returns `counts[c]` samples of class c, classes in turn as long as there are some.
Labelled classes_of(std::vector<int> counts) {
  const std::size_t classes = counts.size();
  std::vector<std::int64_t> labels;
  for (bool more = true; more;) {
    more = false;
    for (std::size_t c = 0; c < classes; ++c) {
      if (counts[c] == 0) continue;
      --counts[c];
      labels.push_back(static_cast<std::int64_t>(c));
      more = true;
    }
  }
  return {std::move(labels), classes};
}

LoaderOptions options_of(Kind kind) {
  LoaderOptions options;
  options.seed = 1;
  options.sampler.kind = kind;
  return options;
}

LoaderOptions weighted(std::vector<double> weights, bool replacement = true) {
  LoaderOptions options = options_of(Kind::weighted);
  options.sampler.weights = std::make_shared<const std::vector<double>>(std::move(weights));
  options.sampler.replacement = replacement;
  options.batch = 1;
  return options;
}

std::vector<std::uint64_t> epoch_of(const LoaderOptions& options, const Reader& reader,
                                    std::uint32_t epoch = 0) {
  const Sampler sampler(options, reader);
  const EpochOrder order = sampler.order(epoch);
  std::vector<std::uint64_t> all(epoch_samples(options, reader.info().count));
  for (std::uint64_t i = 0; i < all.size(); ++i) all[i] = order(i);
  return all;
}

/// Returns Pearson's statistic of `counts` for these probabilities.
double chi_square(const std::vector<std::uint64_t>& counts, const std::vector<double>& weights) {
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double chi2 = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (weights[i] == 0) {
      EXPECT_EQ(counts[i], 0u) << "sample " << i << " has weight 0";
      continue;
    }
    const double expected = all * weights[i] / sum;
    chi2 += (static_cast<double>(counts[i]) - expected) *
            (static_cast<double>(counts[i]) - expected) / expected;
  }
  return chi2;
}

TEST(Sampler, DrawsByWeight) {
  // 7 samples of different weights; 5 degrees of freedom, p = 0.001.
  const std::vector<double> weights{1, 0, 2.5, 1e-3, 40, 1, 0.125};
  LoaderOptions options = weighted(weights);
  options.sampler.samples = 500'000;
  std::vector<std::uint64_t> counts(weights.size());
  for (const std::uint64_t index : epoch_of(options, Numbered(weights.size()))) ++counts[index];
  EXPECT_LT(chi_square(counts, weights), 20.5);
}

TEST(Sampler, DrawsByWeightWhereFewSamplesHaveNearlyAllOfIt) {
  std::vector<double> weights(1000, 1e-12);
  weights[17] = 1;
  weights[18] = 0;
  weights[999] = 3;
  LoaderOptions options = weighted(weights);
  options.sampler.samples = 100'000;
  std::vector<std::uint64_t> counts(weights.size());
  for (const std::uint64_t index : epoch_of(options, Numbered(weights.size()))) ++counts[index];
  EXPECT_EQ(counts[17] + counts[999], 100'000u);
  EXPECT_LT(chi_square({counts[17], counts[999]}, {1, 3}), 10.8);  // 1 degree of freedom
}

TEST(Sampler, ConsecutiveDrawsAreIndependent) {
  LoaderOptions options = weighted({1, 2, 3});
  options.sampler.samples = 300'001;
  const auto all = epoch_of(options, Numbered(3));
  std::vector<std::uint64_t> counts(9);
  std::vector<double> weights;
  for (std::size_t i = 1; i < all.size(); ++i) ++counts[3 * all[i - 1] + all[i]];
  for (const double a : {1, 2, 3})
    for (const double b : {1, 2, 3}) weights.push_back(a * b);
  EXPECT_LT(chi_square(counts, weights), 26.2);  // 8 degrees of freedom, p = 0.001
}

TEST(Sampler, WithoutReplacementNoSampleComesTwiceAndHeavyOnesComeFirst) {
  const std::vector<double> weights{5, 1, 0, 2, 2};
  LoaderOptions options = weighted(weights, /*replacement=*/false);
  options.sampler.samples = 4;
  const Numbered reader(weights.size());
  std::vector<std::uint64_t> firsts(weights.size());
  std::vector<std::uint64_t> seconds(weights.size());  // behind sample 0
  const Sampler sampler(options, reader);
  for (std::uint32_t epoch = 0; epoch < 20'000; ++epoch) {
    const EpochOrder order = sampler.order(epoch);
    std::set<std::uint64_t> taken;
    for (std::uint64_t i = 0; i < 4; ++i) taken.insert(order(i));
    ASSERT_EQ(taken, (std::set<std::uint64_t>{0, 1, 3, 4}));
    ++firsts[order(0)];
    if (order(0) == 0) ++seconds[order(1)];
  }
  EXPECT_LT(chi_square(firsts, weights), 16.3);           // 3 degrees of freedom, p = 0.001
  EXPECT_LT(chi_square(seconds, {0, 1, 0, 2, 2}), 13.9);  // 2 degrees of freedom
}

TEST(Sampler, ClassesAreDrawnEquallyOftenAndTheirSamplesToo) {
  const Labelled reader = classes_of({500, 0, 10, 1});
  LoaderOptions options = options_of(Kind::weighted);
  options.sampler.samples = 300'000;
  std::vector<std::uint64_t> counts(4), of_third(reader.info().count);
  for (const std::uint64_t index : epoch_of(options, reader)) {
    ++counts[static_cast<std::size_t>(reader.label(index))];
    if (reader.label(index) == 2) ++of_third[index];
  }
  EXPECT_LT(chi_square(counts, {1, 0, 1, 1}), 13.9);  // 2 degrees of freedom, p = 0.001
  std::vector<double> weights(of_third.size());
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = reader.label(i) == 2 ? 1 : 0;
  EXPECT_LT(chi_square(of_third, weights), 27.9);  // 9 degrees of freedom
}

TEST(Sampler, BalancedBatchesHaveTheirClassesOnceAndNoSampleTwice) {
  const Labelled reader = classes_of({30, 7, 4, 12, 0, 25, 9});
  LoaderOptions options = options_of(Kind::balanced);
  options.batch = 4 * 4;
  options.sampler.samples = 16 * 300;
  const auto all = epoch_of(options, reader);
  std::map<std::int64_t, int> batches_of;
  for (std::size_t begin = 0; begin < all.size(); begin += 16) {
    const std::set<std::uint64_t> batch(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                        all.begin() + static_cast<std::ptrdiff_t>(begin) + 16);
    ASSERT_EQ(batch.size(), 16u) << "at " << begin;
    std::map<std::int64_t, int> labels;
    for (const std::uint64_t index : batch) ++labels[reader.label(index)];
    ASSERT_EQ(labels.size(), 4u) << "at " << begin;
    for (const auto& [label, count] : labels) {
      ASSERT_EQ(count, 4);
      ++batches_of[label];
    }
  }
  // Rounds of one batch of 4 of 6 classes: each is in 200 of 300 on average; 4.4 standard
  // deviations.
  for (const auto& [label, count] : batches_of) EXPECT_NEAR(count, 200, 36) << label;
  EXPECT_EQ(batches_of.size(), 6u);
}

TEST(Sampler, BalancedBatchesUseAllSamplesOfAClassBeforeAnyComesAgain) {
  const Labelled reader = classes_of({12, 12});
  LoaderOptions options = options_of(Kind::balanced);
  options.batch = 8;
  const auto all = epoch_of(options, reader);
  EXPECT_EQ(std::set<std::uint64_t>(all.begin(), all.end()).size(), 24u);
  EXPECT_EQ(all.size(), 24u);
}

TEST(Sampler, AClassWithFewSamplesRepeatsThem) {
  const Labelled reader = classes_of({2, 9});
  LoaderOptions options = options_of(Kind::balanced);
  options.batch = 8;
  std::map<std::uint64_t, int> counts;
  for (const std::uint64_t index : epoch_of(options, reader))
    if (reader.label(index) == 0) ++counts[index];
  for (const auto& [index, count] : counts) EXPECT_EQ(count, 2) << index;
  EXPECT_EQ(counts.size(), 2u);
}

TEST(Sampler, RepeatsEachSampleInARow) {
  LoaderOptions options = options_of(Kind::repeat);
  const auto all = epoch_of(options, Numbered(10));
  ASSERT_EQ(all.size(), 10u);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], all[i / 3 * 3]);
  EXPECT_EQ(std::set<std::uint64_t>(all.begin(), all.end()).size(), 4u);
  const Sampler sampler(options, Numbered(10));
  EXPECT_NE(sampler.key(0, 0, all[0]).sample, sampler.key(0, 1, all[1]).sample);
  LoaderOptions plain = options_of(Kind::shuffle);
  EXPECT_EQ(Sampler(plain, Numbered(10)).key(0, 3, 7).sample, 7u);
}

TEST(Sampler, AShorterEpochTakesOtherSamplesEachTime) {
  LoaderOptions options = options_of(Kind::shuffle);
  options.batch = 5;
  options.sampler.samples = 20;
  const auto first = epoch_of(options, Numbered(100), 0);
  EXPECT_EQ(std::set<std::uint64_t>(first.begin(), first.end()).size(), 20u);
  EXPECT_NE(first, epoch_of(options, Numbered(100), 1));
}

TEST(Sampler, TakesAGivenOrderAndKeysDrawsByPosition) {
  LoaderOptions options = options_of(Kind::given);
  options.sampler.samples = 4;
  options.batch = 2;
  const auto order =
      std::make_shared<const std::vector<std::uint64_t>>(std::vector<std::uint64_t>{7, 2, 7, 99});
  options.sampler.order = [&](std::uint32_t epoch) { return epoch == 1 ? order : nullptr; };
  const Numbered reader(100);
  EXPECT_EQ(epoch_of(options, reader, 1), *order);
  const Sampler sampler(options, reader);
  EXPECT_TRUE(sampler.has_order(1));
  EXPECT_FALSE(sampler.has_order(0));
  EXPECT_NE(sampler.key(1, 0, 7).sample, sampler.key(1, 2, 7).sample);
  Draw draw(base::stream({1, 1, 0}, base::op_id("replace")));
  for (int i = 0; i < 100; ++i)
    EXPECT_NE(std::find(order->begin(), order->end(), sampler.order(1).another(draw)),
              order->end());
}

TEST(Sampler, EachKindDependsOnSeedAndEpoch) {
  const Labelled reader = classes_of({40, 40, 40, 40});
  for (LoaderOptions options :
       {options_of(Kind::shuffle), options_of(Kind::weighted), options_of(Kind::balanced),
        options_of(Kind::repeat), weighted(std::vector<double>(160, 1)),
        weighted(std::vector<double>(160, 1), false)}) {
    options.batch = 16;
    const auto base = epoch_of(options, reader);
    EXPECT_EQ(base, epoch_of(options, reader));
    EXPECT_NE(base, epoch_of(options, reader, 1));
    options.seed = 2;
    EXPECT_NE(base, epoch_of(options, reader));
  }
}

TEST(Sampler, RefusesWhatDoesNotFit) {
  const Labelled reader = classes_of({4, 4, 4});
  const auto refused = [&](LoaderOptions options, const std::string& part,
                           const std::function<void(LoaderOptions&)>& change = nullptr) {
    options.batch = 4;
    if (change) change(options);
    try {
      const Sampler sampler(options, reader);
      ADD_FAILURE() << "not refused: " << part;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  const std::vector<double> ones(12, 1);
  refused(weighted({1, 2}), "2 weights for 12 samples");
  refused(weighted(std::vector<double>(12, 0)), "all are 0");
  for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) {
    std::vector<double> weights = ones;
    weights[5] = bad;
    refused(weighted(weights), "sample 5 has weight");
  }
  refused(weighted(std::vector<double>(12, 1e308)), "too large");
  std::vector<double> some = ones;
  some[0] = 0;
  refused(weighted(some, false), "cannot draw 12 samples, as only 11 have");
  LoaderOptions by_class = options_of(Kind::weighted);
  by_class.sampler.replacement = false;
  refused(by_class, "needs sampler.weights");
  refused(options_of(Kind::shuffle), "each is drawn once", [](auto& o) { o.sampler.samples = 13; });
  refused(options_of(Kind::repeat), "3 times", [](auto& o) { o.sampler.samples = 37; });
  refused(options_of(Kind::balanced), "multiple of sampler.per_class",
          [](auto& o) { o.batch = 6; });
  refused(options_of(Kind::balanced), "is not a multiple of loader.batch",
          [](auto& o) { o.sampler.samples = 7; });
  refused(options_of(Kind::balanced), "has 4 classes; memory has samples of 3", [](auto& o) {
    o.batch = 16;
    o.sampler.samples = 16;
  });
}

}  // namespace
}  // namespace millrace::pipeline
