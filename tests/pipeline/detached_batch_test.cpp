// Tests Batch::detach(): a batch that leaves the loader keeps its bytes, the loader goes on with
// other memory, and that memory stays bounded.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "augment/plan/plan.h"
#include "millrace/error.h"
#include "millrace/loader.h"
#include "tests/pipeline/numbered.h"

namespace millrace::pipeline::detached {
namespace {

std::shared_ptr<const augment::Plan> plan_of(const Reader& reader) {
  return std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{reader.info().size, 1},
                                         OutputOptions{DType::u8, Layout::chw, {0}, {1}},
                                         Resample::once);
}

LoaderOptions options_of(int workers) {
  LoaderOptions options;
  options.workers = workers;
  options.batch = 8;
  options.prefetch = 3;
  options.held = 0;
  return options;
}

/// Copy of what a batch holds.
struct Copy {
  explicit Copy(const Batch& batch)
      : bytes(batch.data(), batch.data() + batch.bytes()),
        labels(batch.labels(), batch.labels() + batch.count()),
        samples(batch.samples(), batch.samples() + batch.count()),
        epoch(batch.epoch()),
        index(batch.index()) {}
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> labels;
  std::vector<std::uint64_t> samples;
  std::uint32_t epoch;
  std::uint64_t index;
  bool operator==(const Copy&) const = default;
};

class DetachedBatch : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, DetachedBatch, testing::Values(0, 2));

TEST_P(DetachedBatch, AWholeEpochCanBeKept) {
  const auto reader = std::make_shared<Numbered>(203);
  LoaderOptions options = options_of(GetParam());
  options.epochs = 2;
  std::vector<Batch> kept;
  std::vector<Copy> copies;
  Loader loader(reader, plan_of(*reader), options);
  while (Batch batch = loader.next()) {
    copies.emplace_back(batch);
    batch.detach();
    kept.push_back(std::move(batch));
  }
  ASSERT_EQ(kept.size(), 52u);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(Copy(kept[i]), copies[i]) << i;
  EXPECT_EQ(loader.stats().extra_blocks, kept.size());
}

TEST_P(DetachedBatch, OneThatIsKeptDelaysNoOther) {
  const auto reader = std::make_shared<Numbered>(400);
  Loader loader(reader, plan_of(*reader), options_of(GetParam()));
  Batch kept = loader.next();
  const Copy copy(kept);
  kept.detach();
  int more = 0;
  for (; Batch batch = loader.next(); ++more) batch.detach();
  EXPECT_EQ(more, 49);
  EXPECT_EQ(Copy(kept), copy);
  EXPECT_EQ(loader.stats().extra_blocks, 2u) << "the kept one and the current one";
}

TEST_P(DetachedBatch, BlocksAreUsedAgainAndFewStayUnused) {
  const auto reader = std::make_shared<Numbered>(800);
  LoaderOptions options = options_of(GetParam());
  options.epochs = 20;
  Loader loader(reader, plan_of(*reader), options);
  std::vector<Batch> kept;
  for (int i = 0; i < 50; ++i) {
    kept.push_back(loader.next());
    kept.back().detach();
  }
  kept.clear();
  const std::uint64_t before = loader.stats().extra_blocks;
  EXPECT_EQ(before, 50u);
  Batch last;
  while (Batch batch = loader.next()) {
    batch.detach();
    last = std::move(batch);
  }
  EXPECT_EQ(loader.stats().extra_blocks, before) << "two blocks serve 1,950 batches";
}

TEST_P(DetachedBatch, OutlivesTheLoaderAndAnyThreadMayReleaseIt) {
  const auto reader = std::make_shared<Numbered>(100);
  std::vector<Batch> kept;
  std::vector<Copy> copies;
  {
    Loader loader(reader, plan_of(*reader), options_of(GetParam()));
    for (int i = 0; i < 6; ++i) {
      Batch batch = loader.next();
      copies.emplace_back(batch);
      batch.detach();
      kept.push_back(std::move(batch));
    }
    std::thread([one = std::move(kept.back())]() mutable { one.release(); }).join();
    kept.pop_back();
    EXPECT_TRUE(loader.next());
  }
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(Copy(kept[i]), copies[i]);
}

TEST_P(DetachedBatch, ReleasesWhatItHolds) {
  const auto reader = std::make_shared<Numbered>(100);
  Loader loader(reader, plan_of(*reader), options_of(GetParam()));
  Batch batch = loader.next();
  batch.detach();
  batch.detach();  // once is enough
  EXPECT_TRUE(batch);
  Batch other = std::move(batch);
  EXPECT_EQ(other.count(), 8);
  other.release();
  EXPECT_FALSE(other);
  other.detach();  // an empty batch holds nothing
  EXPECT_FALSE(other);
}

TEST_P(DetachedBatch, ACachedSlotKeepsItsSamples) {
  const auto reader = std::make_shared<Numbered>(64);
  LoaderOptions options = options_of(GetParam());
  options.mode = LoaderMode::cached;
  options.epochs = 3;
  options.shuffle = {Shuffle::Kind::none, 0};
  Loader loader(reader, plan_of(*reader), options);
  Loader lending(reader, plan_of(*reader), options);
  while (Batch batch = loader.next()) {
    const Batch same = lending.next();
    batch.detach();
    EXPECT_EQ(Copy(batch), Copy(same)) << batch.epoch() << ", " << batch.index();
  }
}

TEST_P(DetachedBatch, NamesTheIndexOfEachSample) {
  const auto reader = std::make_shared<Numbered>(203);
  Loader loader(reader, plan_of(*reader), options_of(GetParam()));
  std::vector<int> seen(203);
  while (const Batch batch = loader.next())
    for (std::int64_t i = 0; i < batch.count(); ++i) {
      const std::uint64_t sample = batch.samples()[i];
      ASSERT_LT(sample, seen.size());
      ++seen[sample];
      EXPECT_EQ(
          static_cast<std::uint64_t>(batch.data()[static_cast<std::size_t>(i) * Numbered::kBytes]),
          sample % 251);
    }
  EXPECT_EQ(seen, std::vector<int>(203, 1));
}

/// Fails for sample 3 and every tenth one after it.
class Holed : public Numbered {
 public:
  using Numbered::Numbered;
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    if (index % 10 == 3) throw DataError("a hole");
    return Numbered::read(index, scratch);
  }
};

TEST_P(DetachedBatch, NamesTheSamplesThatRemainWhenOthersFail) {
  const auto reader = std::make_shared<Holed>(100);
  for (const OnError on_error : {OnError::skip, OnError::replace}) {
    LoaderOptions options = options_of(GetParam());
    options.on_error = on_error;
    Loader loader(reader, plan_of(*reader), options);
    std::int64_t count = 0;
    while (const Batch batch = loader.next()) {
      count += batch.count();
      for (std::int64_t i = 0; i < batch.count(); ++i)
        EXPECT_EQ(static_cast<std::uint64_t>(
                      batch.data()[static_cast<std::size_t>(i) * Numbered::kBytes]),
                  batch.samples()[i] % 251);
    }
    EXPECT_EQ(count, on_error == OnError::skip ? 90 : 100);
  }
}

/// Reads nothing until it is opened.
class Gate : public Numbered {
 public:
  using Numbered::Numbered;
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Numbered::read(index, scratch);
  }
  std::atomic<bool> open{false};
};

TEST(LoaderPoll, EndsTheWaitButNotTheLoader) {
  const auto reader = std::make_shared<Gate>(40);
  LoaderOptions options = options_of(2);
  int polls = 0;
  options.poll = [&] { return ++polls == 2; };
  Loader loader(reader, plan_of(*reader), options);
  EXPECT_FALSE(loader.next());
  EXPECT_EQ(polls, 2);
  reader->open = true;
  std::uint64_t batches = 0;
  while (const Batch batch = loader.next()) {
    EXPECT_EQ(batch.index(), batches);
    ++batches;
  }
  EXPECT_EQ(batches, 5u) << "none is lost";
}

}  // namespace
}  // namespace millrace::pipeline::detached
