// Wait breakdowns of made-up histories: what each moment is charged to, and that the parts add up.
#include "measure/wait_breakdown.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/rng.h"

namespace millrace::measure {
namespace {

using Ticks = base::Clock::Ticks;

RangeHistory unit(Ticks begin, Ticks end, std::array<Ticks, kStageCount> stages) {
  RangeHistory made;
  made.begin = begin;
  made.end = end;
  made.stages = stages;
  return made;
}

/// Returns a batch opened at `opened`, asked for at `asked`, and taken as soon as it was done.
BatchHistory batch(Ticks opened, Ticks asked, std::span<const RangeHistory> units) {
  BatchHistory made;
  made.ordinal = 7;
  made.index = 3;
  made.opened = opened;
  made.asked = asked;
  made.units = units;
  for (const RangeHistory& one : units) made.ready = std::max(made.ready, one.end);
  made.got = std::max(asked, made.ready);
  return made;
}

PartTicks split(const BatchHistory& batch) { return WaitSplitter().split(batch); }

PartTicks parts(std::initializer_list<std::pair<Part, Ticks>> all) {
  PartTicks made{};
  for (const auto& [part, ticks] : all) made[static_cast<std::size_t>(part)] = ticks;
  return made;
}

TEST(WaitBreakdown, ABatchThatIsThereCostsItsHandover) {
  const std::vector units{unit(100, 200, {30, 50, 20})};
  BatchHistory ready = batch(50, 500, units);
  ready.got = 503;
  EXPECT_EQ(split(ready), parts({{Part::handover, 3}}));
}

TEST(WaitBreakdown, WorkGoesToItsStagesInProportion) {
  const std::vector units{unit(100, 200, {30, 50, 20})};
  EXPECT_EQ(split(batch(100, 100, units)),
            parts({{Part::storage, 30}, {Part::decode, 50}, {Part::augment, 20}}));
  EXPECT_EQ(split(batch(100, 180, units)),
            parts({{Part::storage, 6}, {Part::decode, 10}, {Part::augment, 4}}))
      << "of the last fifth, a fifth of each";
}

TEST(WaitBreakdown, WaitingForAWorkerIsQueueUnlessTheBatchItselfHasIt) {
  const std::vector alone{unit(300, 400, {0, 100, 0})};
  EXPECT_EQ(split(batch(100, 50, alone)), parts({{Part::decode, 100}, {Part::queue, 250}}))
      << "behind other batches, and before that without a slot";
  // One worker: 100..200, 200..300, a gap of 20, 320..400.
  const std::vector turns{unit(200, 300, {0, 100, 0}), unit(320, 400, {0, 80, 0}),
                          unit(100, 200, {0, 0, 100})};
  EXPECT_EQ(split(batch(90, 90, turns)),
            parts({{Part::decode, 180}, {Part::augment, 100}, {Part::queue, 20 + 10}}));
  // Two workers: while one unit decodes, nobody waits for the other.
  const std::vector together{unit(100, 300, {0, 200, 0}), unit(100, 180, {0, 0, 80})};
  EXPECT_EQ(split(batch(100, 100, together)), parts({{Part::decode, 200}}));
}

TEST(WaitBreakdown, StartUpAndEpochBoundaryAreTheirOwn) {
  const std::vector units{unit(300, 400, {0, 100, 0})};
  BatchHistory first = batch(200, 100, units);
  first.first = true;
  first.index = 0;
  EXPECT_EQ(split(first), parts({{Part::decode, 100}, {Part::startup, 200}}));
  first.first = false;
  EXPECT_EQ(split(first), parts({{Part::decode, 100}, {Part::epoch_boundary, 200}}));
  first.made_inline = true;
  EXPECT_EQ(split(first), parts({{Part::decode, 100}, {Part::handover, 200}}));
}

TEST(WaitBreakdown, WhatAnIoThreadReadsIsStorage) {
  std::vector units{unit(350, 400, {0, 50, 0}), unit(200, 260, {0, 60, 0})};
  units[0].fetch_begin = 180;
  units[0].fetch_end = 300;
  units[1].fetch_begin = 120;
  units[1].fetch_end = 190;
  EXPECT_EQ(split(batch(100, 100, units)),
            parts({{Part::decode, 50},            // the last unit
                   {Part::queue, 50 + 20},        // read, but without a worker; before any reads
                   {Part::storage, 120 + 60}}));  // its own reads, and those before it
  units[0].fetch_on_core = 0.75;
  const PartTicks crowded = split(batch(100, 100, units));
  EXPECT_EQ(crowded[static_cast<std::size_t>(Part::cores)], 45);
  EXPECT_EQ(crowded[static_cast<std::size_t>(Part::storage)], 135);
}

TEST(WaitBreakdown, WaitingForACore) {
  std::vector units{unit(100, 200, {0, 80, 20})};
  units[0].core_wait = 50;
  EXPECT_EQ(split(batch(100, 100, units)),
            parts({{Part::cores, 50}, {Part::decode, 40}, {Part::augment, 10}}));
  units[0].core_wait = 0;
  units[0].fault_wait = 60;  // page faults of a mapped file, while decoding and augmenting
  EXPECT_EQ(split(batch(100, 100, units)),
            parts({{Part::storage, 60}, {Part::decode, 32}, {Part::augment, 8}}));
  // Nobody had it from 60 to 100; for the last 25 its worker only lacked a core.
  units[0].fault_wait = 0;
  units[0].begin_wait = 25;
  EXPECT_EQ(split(batch(80, 60, units)),
            parts({{Part::cores, 25}, {Part::decode, 80}, {Part::augment, 20}, {Part::queue, 15}}));
  BatchHistory woken = batch(100, 150, units);
  woken.got = 260;
  woken.core_wait = 45;
  const PartTicks late = split(woken);
  EXPECT_EQ(late[static_cast<std::size_t>(Part::cores)], 45);
  EXPECT_EQ(late[static_cast<std::size_t>(Part::handover)], 15);
}

TEST(WaitBreakdown, PartsAlwaysAddUpToTheWait) {
  std::uint64_t state = 1;
  const auto draw = [&](Ticks most) {
    state = base::mix64(state + 1);
    return static_cast<Ticks>(state % static_cast<std::uint64_t>(most + 1));
  };
  WaitSplitter splitter;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<RangeHistory> units;
    const bool read_ahead = draw(1) == 0;
    for (Ticks n = draw(6); n > 0; --n) {
      RangeHistory one = unit(200 + draw(800), 0, {draw(100), draw(100), draw(100)});
      one.end = one.begin + std::max<Ticks>(draw(300), one.stages[0] + one.stages[1]);
      one.core_wait = draw(300);
      one.fault_wait = draw(300);
      one.begin_wait = draw(300);
      one.fetch_on_core = static_cast<double>(draw(10)) / 10;
      if (read_ahead) {
        one.fetch_end = one.begin - draw(50);
        one.fetch_begin = one.fetch_end - draw(100);
      }
      units.push_back(one);
    }
    BatchHistory one = batch(draw(250), draw(1500), units);
    one.ready += draw(30);
    one.got = std::max(one.asked, one.ready) + draw(40);
    one.core_wait = draw(60);
    one.index = static_cast<std::uint64_t>(draw(1));
    one.first = draw(9) == 0;
    one.made_inline = draw(9) == 0;
    const PartTicks found = splitter.split(one);
    for (const Ticks part : found) ASSERT_GE(part, 0) << i;
    ASSERT_EQ(std::accumulate(found.begin(), found.end(), Ticks{0}), one.got - one.asked) << i;
  }
}

TEST(WaitBreakdown, StepsAddUpToLoad) {
  const std::vector units{unit(100, 200, {30, 50, 20})};
  BatchHistory one = batch(100, 100, units);
  one.first = true;
  WaitBreakdown blame;
  blame.add(one, 105);
  one.first = false;
  blame.add(one, 110);
  EXPECT_EQ(blame.ticks(), parts({{Part::storage, 60},
                                  {Part::decode, 100},
                                  {Part::augment, 40},
                                  {Part::handover, 5 + 10}}));
  EXPECT_DOUBLE_EQ(blame.steady_seconds()[static_cast<std::size_t>(Part::decode)],
                   base::Clock::seconds(50));
  blame.complete(300);  // a wait that returned no batch
  EXPECT_EQ(blame.ticks()[static_cast<std::size_t>(Part::handover)], 100);
  EXPECT_EQ(blame.steps(), 2u);
}

TEST(Quantiles, AreRightToTwoPercent) {
  Quantiles none;
  EXPECT_EQ(none.at(0.5), 0);
  for (const double scale : {1e-7, 1e-3, 2.0}) {
    Quantiles all;
    for (int i = 1; i <= 1000; ++i) all.add(scale * i);
    EXPECT_NEAR(all.at(0.5), scale * 500, 0.02 * scale * 500);
    EXPECT_NEAR(all.at(0.99), scale * 990, 0.02 * scale * 990);
    EXPECT_NEAR(all.at(1), scale * 1000, 0.02 * scale * 1000);
    EXPECT_NEAR(all.at(0), scale, 0.02 * scale);
  }
  Quantiles some;
  some.add(1);
  EXPECT_EQ(some.at(0.5, 1), 0) << "one of 0 s and one of 1 s";
  EXPECT_NEAR(some.at(0.51, 1), 1, 0.02);
  Quantiles mostly_nothing;
  for (int i = 0; i < 99; ++i) mostly_nothing.add(0);
  mostly_nothing.add(1e6);  // longer than the last class
  EXPECT_EQ(mostly_nothing.at(0.9), 0);
  EXPECT_GT(mostly_nothing.at(1), 8000);
}

}  // namespace
}  // namespace millrace::measure
