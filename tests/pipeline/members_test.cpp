// Tests how batches hand out other members of their samples.
#include <gtest/gtest.h>

#include <map>

#include "millrace/error.h"
#include "tests/pipeline/allocations.h"
#include "tests/pipeline/annotated.h"
#include "tests/pipeline/numbered.h"

namespace millrace::pipeline {
namespace {

using Texts = std::vector<std::string>;

/// Numbered images, of which the i-th has a caption of i modulo 50 letters, and every third a
/// number. Those whose number ends in 7 cannot be read if `fails`.
class Captioned final : public Numbered {
 public:
  explicit Captioned(std::uint64_t count, bool fails = false) : Numbered(count), fails_(fails) {
    info_.members = {"txt", "number"};
    info_.in_place = true;
    for (std::uint64_t i = 0; i < count; ++i) texts_.push_back({caption(i), std::to_string(i)});
    const auto bytes_of = [](const std::string& text) {
      return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    };
    for (std::uint64_t i = 0; i < count; ++i) {
      members_.emplace_back(bytes_of(texts_[i][0]));
      members_.push_back(i % 3 == 0 ? Member(bytes_of(texts_[i][1])) : std::nullopt);
    }
  }
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    if (fails_ && index % 10 == 7) throw DataError("cannot be read");
    Sample sample = Numbered::read(index, scratch);
    sample.members = std::span(members_).subspan(2 * index, 2);
    return sample;
  }
  static std::string caption(std::uint64_t index) {
    return std::string(index % 50, static_cast<char>('a' + index % 26));
  }

 private:
  const bool fails_;
  std::vector<Texts> texts_;
  std::vector<Member> members_;
};

std::string text_of(const Member& member) {
  return member ? std::string(member->begin(), member->end()) : "none";
}

/// Returns what a batch has, after a check that each sample has its own members.
Texts members_in(const Batch& batch) {
  Texts texts;
  for (std::int64_t i = 0; i < batch.count(); ++i) {
    const std::uint64_t index = batch.samples()[i];
    EXPECT_EQ(text_of(batch.member(i, 0)), Captioned::caption(index));
    EXPECT_EQ(text_of(batch.member(i, 1)), index % 3 == 0 ? std::to_string(index) : "none");
    for (const std::size_t name : {0, 1}) texts.push_back(text_of(batch.member(i, name)));
  }
  return texts;
}

Texts members_taken(int workers, int grain, int world, std::uint64_t first = 0,
                    int io_threads = 0) {
  const auto reader = std::make_shared<Captioned>(100);
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < world; ++rank) {
    LoaderOptions options = two_epochs(workers, 12);
    options.io_threads = io_threads;
    options.grain = grain;
    options.rank = rank;
    options.world = world;
    options.first_batch = first;
    loaders.push_back(
        std::make_unique<Loader>(reader, plan_for(*reader, {"random_crop{size=4}"}), options));
  }
  Texts all;
  for (std::uint64_t i = first; i < 2 * loaders[0]->batches_per_epoch(); ++i)
    for (const auto& loader : loaders) {
      Batch batch = loader->next();
      if (i % 2 == 1) batch.detach();
      const Texts more = members_in(batch);
      all.insert(all.end(), more.begin(), more.end());
    }
  return all;
}

TEST(Members, DoNotDependOnWorkersGrainRanksOrTheFirstBatch) {
  const Texts expected = members_taken(0, 0, 1);
  EXPECT_EQ(expected.size(), 400u);
  for (const int workers : {1, 3})
    for (const int grain : {1, 5}) EXPECT_EQ(members_taken(workers, grain, 1), expected);
  EXPECT_EQ(members_taken(2, 2, 3), expected);
  EXPECT_EQ(members_taken(2, 0, 1, 0, 2), expected);
  const Texts rest = members_taken(2, 3, 1, 4);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected.end() - std::ssize(rest)));
}

TEST(Members, AreThoseOfTheSamplesThatAreLeftOrTakeTheirPlace) {
  const auto reader = std::make_shared<Captioned>(100, true);
  for (const OnError on_error : {OnError::skip, OnError::replace})
    for (const int workers : {0, 2}) {
      LoaderOptions options = two_epochs(workers, 20);
      options.on_error = on_error;
      options.grain = 3;
      Loader loader(reader, plan_for(*reader, {}), options);
      std::int64_t count = 0;
      for (int i = 0; i < 10; ++i) {
        const Batch batch = loader.next();
        members_in(batch);
        count += batch.count();
      }
      EXPECT_EQ(count, on_error == OnError::skip ? 180 : 200);
    }
}

TEST(Members, DetachedBatchesKeepThem) {
  const auto reader = std::make_shared<Captioned>(100);
  Loader loader(reader, plan_for(*reader, {}), two_epochs(2, 10));
  std::vector<Batch> kept;
  for (int i = 0; i < 20; ++i) {
    kept.push_back(loader.next());
    kept.back().detach();
  }
  for (const Batch& batch : kept) members_in(batch);
}

TEST(Members, BatchesThatAreHandedOutAgainKeepThemAndNoiseHasNone) {
  const auto reader = std::make_shared<Captioned>(8);
  LoaderOptions options = two_epochs(1, 2);
  options.prefetch = 1;
  options.mode = LoaderMode::cached;
  Loader loader(reader, plan_for(*reader, {}), options);
  for (std::uint64_t i = 0; i < 8; ++i) {
    Batch batch = loader.next();
    if (i % 3 == 0) batch.detach();
    members_in(batch);
  }
  options.mode = LoaderMode::synthetic;
  Loader noise(reader, plan_for(*reader, {}), options);
  EXPECT_FALSE(noise.next().member(1, 0));
}

TEST(Members, NothingIsAllocatedPerSample) {
  if (!counts_allocations()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto reader = std::make_shared<Captioned>(400);
  for (const int workers : {0, 2}) {
    LoaderOptions options = two_epochs(workers, 40);
    options.epochs = 30;
    Loader loader(reader, plan_for(*reader, {}), options);
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(loader.next());
    const std::uint64_t before = allocations();
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(loader.next());
    EXPECT_LT(allocations() - before, 120u) << workers << " workers, 2400 samples";
  }
}

}  // namespace
}  // namespace millrace::pipeline
