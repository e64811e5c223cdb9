// Tests which samples data.fold, data.subset and data.fraction choose.
#include "pipeline/readers/subset.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "millrace/error.h"
#include "tests/data/support.h"
#include "tests/pipeline/numbered.h"

namespace millrace::pipeline {
namespace {

/// Numbered images whose labels are 0, 1, 2, 3, 0, 1, 2, 0, 1, 0 and so on: classes of several
/// sizes; with a number and a JSON value each.
class Uneven final : public Numbered {
 public:
  explicit Uneven(std::uint64_t count, bool numeric = true) : Numbered(count) {
    info_.fingerprint = 17;
    targets_.numeric = numeric;
    for (std::uint64_t i = 0; i < count; ++i) {
      targets_.numbers.push_back(static_cast<float>(i));
      targets_.text += "{\"n\":" + std::to_string(i) + "}";
      targets_.ends.push_back(targets_.text.size());
    }
  }
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    Sample sample = Numbered::read(index, scratch);
    constexpr int kLabels[] = {0, 1, 2, 3, 0, 1, 2, 0, 1, 0};
    sample.label = kLabels[index % 10];
    return sample;
  }
  const Targets* targets() const override { return &targets_; }

 private:
  Targets targets_;
};

/// Returns the chosen samples' indices in the whole set.
std::vector<std::uint64_t> chosen(std::uint64_t count, const DataOptions& options) {
  const auto reader = choose_subset(std::make_unique<Uneven>(count), options);
  std::vector<std::uint64_t> indices;
  for (std::uint64_t i = 0; i < reader->info().count; ++i)
    indices.push_back(std::stoull(reader->name(i).substr(6)));  // "image N"
  return indices;
}

DataOptions fold(std::uint64_t part, std::uint64_t parts, const char* split) {
  DataOptions options;
  options.fold = Fold{part, parts};
  options.split = split;
  return options;
}

std::map<std::int64_t, int> by_class(const std::vector<std::uint64_t>& indices) {
  const Uneven whole(1000);
  std::map<std::int64_t, int> counts;
  for (const std::uint64_t index : indices) ++counts[whole.label(index)];
  return counts;
}

TEST(Subset, FoldsDivideTheTrainingSplitInEachClassAlike) {
  for (const std::uint64_t parts : {2, 3, 5, 7}) {
    std::set<std::uint64_t> all;
    for (std::uint64_t part = 1; part <= parts; ++part) {
      const auto tested = chosen(997, fold(part, parts, "test"));
      const auto trained = chosen(997, fold(part, parts, "train"));
      EXPECT_TRUE(std::is_sorted(tested.begin(), tested.end()));
      EXPECT_EQ(tested.size() + trained.size(), 997u);
      EXPECT_NEAR(static_cast<double>(tested.size()), 997.0 / static_cast<double>(parts), 1);
      std::vector<std::uint64_t> both(tested);
      both.insert(both.end(), trained.begin(), trained.end());
      EXPECT_EQ(std::set<std::uint64_t>(both.begin(), both.end()).size(), 997u);
      for (const auto& [label, count] : by_class(tested))
        EXPECT_NEAR(count, by_class(both)[label] / static_cast<double>(parts), 1)
            << "class " << label;
      all.insert(tested.begin(), tested.end());
    }
    EXPECT_EQ(all.size(), 997u) << "every sample is tested on once";
  }
}

TEST(Subset, ALargerFractionHoldsASmallerOne) {
  DataOptions options;
  std::vector<std::uint64_t> before;
  for (const double fraction : {0.001, 0.1, 0.25, 0.5, 0.999}) {
    options.fraction = fraction;
    const auto now = chosen(1000, options);
    EXPECT_TRUE(std::includes(now.begin(), now.end(), before.begin(), before.end())) << fraction;
    auto counts = by_class(now);
    EXPECT_EQ(counts[0], std::max(1L, std::lround(fraction * 400)));
    EXPECT_EQ(counts[3], std::max(1L, std::lround(fraction * 100)));
    if (fraction == 0.5) {
      EXPECT_GT(now.back(), 900u) << "a fraction is no prefix of the set";
    }
    before = now;
  }
  options.split = "test";
  EXPECT_EQ(chosen(1000, options).size(), 1000u);
}

class SubsetList : public testing::Test {
 protected:
  DataOptions listing(const std::string& text) {
    DataOptions options;
    options.listed = folder_.write("list.txt", {text.begin(), text.end()});
    return options;
  }
  void expect_refusal(const DataOptions& options, const std::string& part) {
    try {
      chosen(20, options);
      ADD_FAILURE() << "not refused: " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  const test::TempFolder folder_;
};

TEST_F(SubsetList, IsTakenInTheSetsOrder) {
  EXPECT_EQ(chosen(20, listing("7\n3\r\n19\n0")), (std::vector<std::uint64_t>{0, 3, 7, 19}));
  DataOptions options = listing("7\n3\n19\n0\n");
  options.fold = Fold{1, 2};
  EXPECT_EQ(chosen(20, options).size(), 2u);
}

TEST_F(SubsetList, IsRefusedByItsLine) {
  expect_refusal(listing("1\n20\n"), "line 2: there is no sample 20");
  expect_refusal(listing("1\n\n"), "line 2: '' is no index");
  expect_refusal(listing("-1\n"), "line 1: '-1' is no index");
  expect_refusal(listing("0x1\n"), "line 1: '0x1' is no index");
  expect_refusal(listing("99999999999999999999\n"), "is no index");
  expect_refusal(listing("4\n5\n4\n"), "line 3: sample 4 is listed twice");
  expect_refusal(listing(""), "no sample of memory is left");
  DataOptions missing;
  missing.listed = folder_.path("none");
  expect_refusal(missing, "data.subset=" + missing.listed);
  ASSERT_EQ(mkfifo(folder_.path("pipe").c_str(), 0600), 0);
  missing.listed = folder_.path("pipe");
  expect_refusal(missing, "pipe");
}

TEST_F(SubsetList, EverySampleKeepsWhatBelongsToIt) {
  for (const bool numeric : {false, true}) {
    const Uneven whole(20, numeric);
    const auto part =
        choose_subset(std::make_unique<Uneven>(20, numeric), listing("2\n3\n11\n18\n"));
    ASSERT_EQ(part->info().count, 4u);
    EXPECT_NE(part->info().fingerprint, whole.info().fingerprint);
    constexpr std::uint64_t kWhole[] = {2, 3, 11, 18};
    Buffer scratch;
    for (std::uint64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(part->label(i), whole.label(kWhole[i]));
      EXPECT_EQ(part->read(i, scratch).bytes[0], kWhole[i]);
      if (numeric)
        EXPECT_EQ(part->targets()->numbers_of(i)[0], static_cast<float>(kWhole[i]));
      else
        EXPECT_EQ(part->targets()->json_of(i), whole.targets()->json_of(kWhole[i]));
    }
  }
}

TEST(Subset, AnOpenDataSetIsHandedOutAsItIs) {
  auto whole = std::make_unique<Uneven>(20);
  const Reader* same = whole.get();
  EXPECT_EQ(choose_subset(std::move(whole), {}).get(), same);
}

TEST(Fold, IsKOfN) {
  EXPECT_EQ(parse_fold("2/5").part, 2u);
  EXPECT_EQ(parse_fold("5/5").parts, 5u);
  for (const char* text :
       {"", "2", "/", "0/5", "6/5", "1/1", "1/0", "-1/5", "1/5/2", "a/5", "1 /5"})
    EXPECT_THROW(parse_fold(text), UsageError) << text;
}

}  // namespace
}  // namespace millrace::pipeline
