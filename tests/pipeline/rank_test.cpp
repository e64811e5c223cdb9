// Tests the rank rule: N ranks together see exactly one rank's batches.
#include <gtest/gtest.h>

#include <algorithm>

#include "augment/plan/plan.h"
#include "millrace/error.h"
#include "millrace/loader.h"
#include "pipeline/loader/slice.h"
#include "plugins/host/registry.h"
#include "tests/pipeline/allocations.h"
#include "tests/pipeline/numbered.h"

namespace millrace::pipeline {
namespace {

TEST(RankSlice, SlicesFollowTheRuleAndTileTheBatch) {
  for (std::int64_t length = 0; length <= 40; ++length) {
    for (int world = 1; world <= 7; ++world) {
      for (const int group : {1, 2, 4, 6}) {
        std::int64_t next = 0;
        for (int rank = 0; rank < world; ++rank) {
          const Slice slice = rank_slice(length, rank, world, group);
          EXPECT_EQ(slice.first, next);
          EXPECT_GE(slice.count, 0);
          EXPECT_EQ(slice.first, rank * length / world / group * group);
          next = slice.first + slice.count;
        }
        EXPECT_EQ(next, length) << world << " ranks, groups of " << group;
      }
    }
  }
  EXPECT_EQ(rank_slice(33, 1, 2, 2).first, 16);
  EXPECT_EQ(rank_slice(std::int64_t{1} << 31, 4095, 4096, 1).count, std::int64_t{1} << 19);
}

OpSpec op_of(const std::string& name) {
  for (const auto& declared : op_declarations())
    if (declared.name == name) return {name, name, true, Params(declared.params)};
  throw std::runtime_error(name);
}

/// Returns a plan with a random flip and rotation, f32. With `mixed`, mixup follows, which makes
/// labels soft.
std::shared_ptr<const augment::Plan> plan_of(const Reader& reader, bool mixed) {
  std::vector<OpSpec> chain{op_of("hflip"), op_of("random_affine")};
  chain[1].params.set("degrees", std::vector<double>{20});
  if (mixed) chain.push_back(op_of("mixup"));
  return std::make_shared<augment::Plan>(chain, Source{reader.info().size, 1},
                                         OutputOptions{DType::f32, Layout::chw, {0}, {1}},
                                         Resample::once, 10);
}

struct Taken {
  std::uint32_t epoch = 0;
  std::uint64_t index = 0;
  std::int64_t global = 0;
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> labels;
  std::vector<float> probabilities;

  bool operator==(const Taken&) const = default;
};

std::vector<Taken> take_all(const std::shared_ptr<const Reader>& reader,
                            const LoaderOptions& options, bool mixed) {
  Loader loader(reader, plan_of(*reader, mixed), options);
  std::vector<Taken> all;
  while (Batch batch = loader.next()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.data()) % 64, 0u);
    Taken one{batch.epoch(), batch.index(), batch.global_count(), {}, {}, {}};
    one.bytes.assign(batch.data(), batch.data() + batch.bytes());
    one.labels.assign(batch.labels(), batch.labels() + batch.count());
    if (mixed)
      one.probabilities.assign(batch.probabilities(),
                               batch.probabilities() + batch.count() * batch.classes());
    all.push_back(std::move(one));
  }
  return all;
}

/// Returns what the ranks see, concatenated batch by batch.
std::vector<Taken> take_ranks(const std::shared_ptr<const Reader>& reader, LoaderOptions options,
                              int world, bool mixed) {
  std::vector<Taken> all;
  options.world = world;
  for (options.rank = 0; options.rank < world; ++options.rank) {
    const std::vector<Taken> part = take_all(reader, options, mixed);
    if (options.rank == 0) {
      all = part;
      continue;
    }
    EXPECT_EQ(part.size(), all.size()) << "every rank gets every batch";
    for (std::size_t i = 0; i < std::min(all.size(), part.size()); ++i) {
      EXPECT_EQ(part[i].epoch, all[i].epoch);
      EXPECT_EQ(part[i].index, all[i].index);
      EXPECT_EQ(part[i].global, all[i].global);
      const auto append = [](auto& to, const auto& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      append(all[i].bytes, part[i].bytes);
      append(all[i].labels, part[i].labels);
      append(all[i].probabilities, part[i].probabilities);
    }
  }
  return all;
}

constexpr int kWorlds[] = {2, 3, 5};

TEST(Ranks, SeeTogetherASingleRanksBatches) {
  const auto reader = std::make_shared<Numbered>(103);  // tails of 7 (of 8), 4 (of 33), 3 (of 4)
  for (const bool mixed : {false, true}) {
    for (const std::int64_t batch : {1, 4, 8, 33, 103}) {
      const std::vector<Taken> expected = take_all(reader, two_epochs(0, batch), mixed);
      EXPECT_EQ(expected.back().global, (103 - 1) % batch + 1);
      for (const int workers : {0, 1, 2}) {
        const LoaderOptions options = two_epochs(workers, batch);
        ASSERT_EQ(take_ranks(reader, options, 1, mixed), expected);
        for (const int world : kWorlds)
          ASSERT_EQ(take_ranks(reader, options, world, mixed), expected)
              << world << " ranks, batch " << batch << ", " << workers << " workers, mixed "
              << mixed;
      }
    }
  }
}

TEST(Ranks, WhateverTheOrderAndTheStart) {
  const auto reader = std::make_shared<Numbered>(70);
  for (const char* shuffle : {"none", "global", "window:16"}) {
    for (const bool drop_last : {false, true}) {
      for (const std::uint64_t first : {0, 1, 4}) {
        LoaderOptions options = two_epochs(0, 33);
        options.shuffle = Shuffle::parse(shuffle);
        options.drop_last = drop_last;
        options.first_batch = drop_last && first > 1 ? 3 : first;
        const std::vector<Taken> expected = take_all(reader, options, true);
        for (const int io_threads : {0, 2}) {
          options.workers = 2;
          options.io_threads = io_threads;
          for (const int world : kWorlds)
            ASSERT_EQ(take_ranks(reader, options, world, true), expected)
                << world << " ranks, " << shuffle << ", drop_last " << drop_last << ", from "
                << first;
        }
      }
    }
  }
}

TEST(Ranks, HoweverSamplesAreDrawn) {
  const auto reader = std::make_shared<Numbered>(70);
  auto weights = std::make_shared<std::vector<double>>();
  for (int i = 0; i < 70; ++i) weights->push_back(i % 7);
  using Kind = SamplerOptions::Kind;
  for (const SamplerOptions& sampler :
       {SamplerOptions{.kind = Kind::weighted, .weights = weights},
        SamplerOptions{
            .kind = Kind::weighted, .weights = weights, .replacement = false, .samples = 50},
        SamplerOptions{.kind = Kind::weighted}, SamplerOptions{.kind = Kind::balanced},
        SamplerOptions{.kind = Kind::repeat}, SamplerOptions{.samples = 41}}) {
    for (const std::uint64_t first : {0, 1, 3}) {
      LoaderOptions options = two_epochs(0, 20);
      options.sampler = sampler;
      options.first_batch = first;
      const std::vector<Taken> expected = take_all(reader, options, true);
      for (const int workers : {0, 2}) {
        options.workers = workers;
        options.io_threads = workers;
        for (const int world : {1, 3})
          ASSERT_EQ(take_ranks(reader, options, world, true), expected)
              << world << " ranks, " << workers << " workers, kind "
              << static_cast<int>(sampler.kind) << ", from " << first;
      }
    }
  }
}

TEST(Ranks, GoOnThroughBatchesThatLeaveThemNothing) {
  // Rank 0 of 3 gets no sample of a batch of 2.
  const auto reader = std::make_shared<Numbered>(200);
  for (const int workers : {0, 1, 2}) {
    for (const int prefetch : {1, 3}) {
      LoaderOptions options = two_epochs(workers, 2);
      options.prefetch = prefetch;
      options.io_threads = workers;
      options.rank = 0;
      options.world = 3;
      Loader loader(reader, plan_of(*reader, false), options);
      int batches = 0;
      while (Batch batch = loader.next()) {
        ++batches;
        ASSERT_EQ(batch.count(), 0);
        ASSERT_EQ(batch.bytes(), 0u);
        ASSERT_EQ(batch.global_count(), 2);
        ASSERT_NE(batch.data(), nullptr);
      }
      EXPECT_EQ(batches, 200);
      EXPECT_EQ(loader.stats().augment.calls, 0u);
    }
  }
}

TEST(Ranks, LeaveEmptyBatchesAtAnyMoment) {
  const auto reader = std::make_shared<Numbered>(5000);
  for (int round = 0; round < 30; ++round) {
    LoaderOptions options = two_epochs(round % 3, 1 + round % 2);
    options.rank = round % 2;
    options.world = 3;
    Loader loader(reader, plan_of(*reader, false), options);
    for (int i = 0; i < round % 7; ++i) ASSERT_TRUE(loader.next());
  }
}

TEST(Ranks, HoldTheirLargestSliceOnly) {
  const auto reader = std::make_shared<Numbered>(100);
  LoaderOptions options = two_epochs(1, 40);
  const std::size_t whole = Loader(reader, plan_of(*reader, false), options).slot_bytes();
  options.world = 4;
  const std::size_t quarter = Loader(reader, plan_of(*reader, false), options).slot_bytes();
  EXPECT_LT(quarter, whole / 2);
  EXPECT_GT(quarter, whole / 5);
}

TEST(Ranks, AShortBatchMayHoldTheLongerSlice) {
  // Rank 2 of 5 gets none of 3 samples, and one of 2: in a set of 5, from the second batch.
  ASSERT_EQ(rank_slice(3, 2, 5, 1).count, 0);
  ASSERT_EQ(rank_slice(2, 2, 5, 1).count, 1);
  const auto reader = std::make_shared<Numbered>(5);
  LoaderOptions options = two_epochs(1, 3);
  const std::vector<Taken> expected = take_all(reader, options, false);
  EXPECT_EQ(take_ranks(reader, options, 5, false), expected);
}

/// Every tenth sample cannot be read.
class Gappy final : public Numbered {
 public:
  using Numbered::Numbered;
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    if (index % 10 == 3) throw DataError("cannot be read");
    return Numbered::read(index, scratch);
  }
};

TEST(Ranks, HandleTheFailuresOfTheirOwnSamples) {
  const auto reader = std::make_shared<Gappy>(70);
  for (const OnError on_error : {OnError::skip, OnError::replace}) {
    for (const int workers : {0, 2}) {
      std::vector<std::uint64_t> failures, positions;
      LoaderOptions options = two_epochs(workers, 33);
      options.epochs = 1;
      options.on_error = on_error;
      options.quarantine = [&](const Failure& failure) { positions.push_back(failure.position); };
      const std::vector<Taken> expected = take_all(reader, options, true);
      ASSERT_GE(positions.size(), 7u);
      failures.swap(positions);
      for (const int world : kWorlds) {
        ASSERT_EQ(take_ranks(reader, options, world, true), expected) << world;
        std::sort(positions.begin(), positions.end());
        EXPECT_EQ(positions, failures) << "each is told of once, with its place in the epoch";
        positions.clear();
      }
    }
  }
}

TEST(Ranks, OutsideTheWorldAreRefused) {
  const auto reader = std::make_shared<Numbered>(20);
  for (const auto& [rank, world] : {std::pair{2, 2}, {-1, 2}, {0, 0}}) {
    LoaderOptions options = two_epochs(0, 4);
    options.rank = rank;
    options.world = world;
    EXPECT_THROW(Loader(reader, plan_of(*reader, false), options), UsageError) << rank;
  }
}

TEST(Ranks, NoAllocationASample) {
  if (!counts_allocations()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto reader = std::make_shared<Numbered>(64 * 200);
  for (const int workers : {0, 2}) {
    LoaderOptions options = two_epochs(workers, 64);
    options.epochs = 3;
    options.rank = 1;
    options.world = 3;
    Loader loader(reader, plan_of(*reader, true), options);
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(loader.next());  // the first epoch warms up
    const std::uint64_t before = allocations();
    for (int i = 0; i < 400; ++i) ASSERT_TRUE(loader.next());
    EXPECT_LT(allocations() - before, 400u) << workers << " workers, 8,533 samples";
  }
}

}  // namespace
}  // namespace millrace::pipeline
