// Tests batch units that declare groups, above all the example of quarters: which samples they mix,
// and that neither ranks nor workers nor the first batch change a byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "augment/plan/plan.h"
#include "millrace/error.h"
#include "millrace/loader.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"
#include "tests/pipeline/numbered.h"
#include "tests/plugins/support.h"

namespace millrace::plugins {
namespace {

using namespace plugin_test;
using pipeline::Numbered;
using pipeline::two_epochs;

struct Taken {
  std::uint64_t index = 0;
  std::vector<std::byte> bytes;
  std::vector<float> probabilities;
  bool operator==(const Taken&) const = default;
};

std::shared_ptr<const augment::Plan> plan_of(const std::vector<std::string>& ops) {
  add_plugin(example_plugin("quarters"));
  add_plugin(test_plugin("group_whole"));
  Recipe recipe(op_declarations());
  for (const std::string& op : ops) recipe.set("augment+=" + op);
  return std::make_shared<augment::Plan>(recipe.augment(), Source{{6, 5}, 1},
                                         OutputOptions{DType::f32, Layout::chw, {0}, {1}},
                                         Resample::once, 10);
}

std::vector<Taken> take_all(const std::vector<std::string>& ops, const LoaderOptions& options,
                            const std::shared_ptr<const Reader>& reader) {
  Loader loader(reader, plan_of(ops), options);
  std::vector<Taken> all;
  while (const Batch batch = loader.next()) {
    Taken one{batch.index(), {}, {}};
    one.bytes.assign(batch.data(), batch.data() + batch.bytes());
    one.probabilities.assign(batch.probabilities(),
                             batch.probabilities() + batch.count() * batch.classes());
    all.push_back(std::move(one));
  }
  return all;
}

/// Returns the positions whose probabilities are not those of one class alone.
std::set<std::size_t> mixed_in(const Taken& batch) {
  std::set<std::size_t> places;
  for (std::size_t i = 0; i < batch.probabilities.size(); ++i)
    if (batch.probabilities[i] > 0 && batch.probabilities[i] < 1) places.insert(i / 10);
  return places;
}

const std::vector<std::vector<std::string>> kChains{
    {"quarters"}, {"mixup", "mosaic"}, {"hflip", "mosaic{p=0.5}", "cutmix"}};

TEST(Groups, RanksAndWorkersGiveTheBatchesOfOneRank) {
  const auto reader = std::make_shared<Numbered>(70);
  for (const auto& ops : kChains)
    for (const std::int64_t batch : {33, 16, 6}) {
      const std::vector<Taken> expected = take_all(ops, two_epochs(0, batch), reader);
      for (const int world : {1, 2, 3, 5})
        for (const int workers : {0, 1, 4}) {
          LoaderOptions options = two_epochs(workers, batch);
          options.world = world;
          std::vector<Taken> joined;
          for (options.rank = 0; options.rank < world; ++options.rank) {
            const std::vector<Taken> part = take_all(ops, options, reader);
            joined.resize(part.size());
            for (std::size_t i = 0; i < part.size(); ++i) {
              joined[i].index = part[i].index;
              const auto append = [](auto& to, const auto& from) {
                to.insert(to.end(), from.begin(), from.end());
              };
              append(joined[i].bytes, part[i].bytes);
              append(joined[i].probabilities, part[i].probabilities);
            }
          }
          ASSERT_EQ(joined, expected) << ops.back() << ", batch " << batch << ", " << world
                                      << " ranks, " << workers << " workers";
        }
    }
}

TEST(Groups, ALaterFirstBatchGivesTheSameBatches) {
  const auto reader = std::make_shared<Numbered>(70);
  const std::vector<Taken> all = take_all(kChains[1], two_epochs(2, 16), reader);
  for (const std::uint64_t first : {std::uint64_t{1}, std::uint64_t{4}, std::uint64_t{7}}) {
    LoaderOptions options = two_epochs(2, 16);
    options.first_batch = first;
    const std::vector<Taken> rest(all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
    EXPECT_EQ(take_all(kChains[1], options, reader), rest);
  }
}

TEST(Groups, TheTailStaysUnmixed) {
  const auto reader = std::make_shared<Numbered>(44);
  LoaderOptions options = two_epochs(1, 22);
  options.shuffle = Shuffle{Shuffle::Kind::none, 0};  // labels of neighbours differ
  for (const Taken& batch : take_all({"quarters"}, options, reader)) {
    std::set<std::size_t> expected;
    for (std::size_t i = 0; i < 20; ++i) expected.insert(i);
    EXPECT_EQ(mixed_in(batch), expected) << "the last two are no group";
  }
}

/// Sample 5 cannot be read.
class Gappy final : public Numbered {
 public:
  using Numbered::Numbered;
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    if (index == 5) throw DataError("cannot be read");
    return Numbered::read(index, scratch);
  }
};

TEST(Groups, AFailedSampleLeavesItsGroupAloneUnmixed) {
  const auto whole = std::make_shared<Numbered>(16);
  const auto gappy = std::make_shared<Gappy>(16);
  for (const int workers : {0, 2}) {
    LoaderOptions options = two_epochs(workers, 16);
    options.epochs = 1;
    options.shuffle = Shuffle{Shuffle::Kind::none, 0};
    const Taken expected = take_all({"quarters"}, options, whole).front();
    options.on_error = OnError::skip;
    const Taken seen = take_all({"quarters"}, options, gappy).front();
    ASSERT_EQ(seen.probabilities.size(), 150u);
    EXPECT_EQ(mixed_in(seen), (std::set<std::size_t>{0, 1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 14}));
    const auto row = [](const Taken& batch, std::size_t place) {
      return std::vector<float>(
          batch.probabilities.begin() + static_cast<std::ptrdiff_t>(place * 10),
          batch.probabilities.begin() + static_cast<std::ptrdiff_t>(place * 10 + 10));
    };
    for (std::size_t place = 0; place < 4; ++place)
      EXPECT_EQ(row(seen, place), row(expected, place));
    for (std::size_t place = 8; place < 16; ++place)
      EXPECT_EQ(row(seen, place - 1), row(expected, place)) << "other groups are as they were";
  }
}

TEST(Groups, AWholeBatchHasOneRank) {
  const auto reader = std::make_shared<Numbered>(44);
  LoaderOptions options = two_epochs(1, 22);
  for (const Taken& batch : take_all({"turn"}, options, reader))
    EXPECT_GE(mixed_in(batch).size(), 15u) << "neighbours of one label may meet";
  EXPECT_EQ(plan_of({"turn", "mosaic"})->group(), MILLRACE_WHOLE_BATCH);
  EXPECT_EQ(plan_of({"mosaic"})->group(), 4);
  EXPECT_EQ(plan_of({"mixup"})->group(), 2);
  EXPECT_EQ(plan_of({"hflip"})->group(), 1);
  options.world = 2;
  try {
    Loader(reader, plan_of({"turn"}), options);
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "an op of the chain works on whole batches, which 2 ranks would divide");
  }
}

TEST(Groups, ATableOfTheFirstInterfaceTakesPairs) {
  add_plugin(test_plugin("group_old"));
  const millrace_unit& halves = augmentation("halves");
  EXPECT_LT(halves.batch->struct_size, sizeof(millrace_batch));
  EXPECT_EQ(group_of(halves), 2);
  const auto reader = std::make_shared<Numbered>(40);
  const std::vector<Taken> all = take_all({"halves"}, two_epochs(1, 20), reader);
  EXPECT_FALSE(mixed_in(all.front()).empty());
}

TEST(Examples, QuartersAreThoseOfFour) {
  add_plugin(example_plugin("quarters"));
  for (std::uint64_t sample = 0; sample < 20; ++sample) {
    const auto plan = plan_of({"quarters{margin=0.2}"});
    const auto scratch = plan->make_scratch();
    std::vector<float> pixels(4 * 30), labels(4 * 10);
    for (std::size_t i = 0; i < 4; ++i) {
      std::fill_n(pixels.begin() + static_cast<std::ptrdiff_t>(i * 30), 30, static_cast<float>(i));
      labels[i * 10 + i] = 1;
    }
    plan->mix({1, 0, sample}, {reinterpret_cast<std::byte*>(pixels.data()), labels.data(), 4, {}},
              *scratch);
    for (std::size_t i = 0; i < 4; ++i) {
      const float* own = pixels.data() + i * 30;
      EXPECT_EQ(own[0], static_cast<float>(i)) << "the first quarter is its own";
      EXPECT_EQ(own[5], static_cast<float>((i + 1) % 4));
      EXPECT_EQ(own[29], static_cast<float>((i + 2) % 4));
      EXPECT_EQ(own[24], static_cast<float>((i + 3) % 4));
      for (std::size_t label = 0; label < 4; ++label)
        EXPECT_NEAR(labels[i * 10 + label],
                    static_cast<double>(std::count(own, own + 30, static_cast<float>(label))) / 30,
                    1e-6);
    }
  }
}

}  // namespace
}  // namespace millrace::plugins
