// Recorder of loops behind torch's DataLoader: histories of batches, rows of a loop, records of
// workers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "measure/data_loader/breakdown.h"
#include "measure/data_loader/loop_timeline.h"
#include "measure/data_loader/record_ring.h"
#include "measure/data_loader/steps.h"
#include "measure/data_loader/usage.h"

namespace millrace::measure {
namespace {

double sum(const Kinds& kinds) { return std::accumulate(kinds.begin(), kinds.end(), 0.0); }

double sum(const PlaceTable& table) {
  double all = 0;
  for (const Kinds& row : table) all += sum(row);
  return all;
}

/// A batch that was fetched from 100 to 300, and sent until 1300, of which it waited for 800 ns.
WorkerRecord a_record() {
  WorkerRecord one{};
  one.generation = 1;
  one.begin = 100;
  one.collate = 200;
  one.end = 300;
  one.dataset_cpu = one.collate_cpu = 100;
  one.samples = 2;
  one.transform = one.transform_cpu = kUnknown;
  one.send_key = 1;
  one.send_begin = 300;
  one.send_end = 1300;
  one.send_cpu = 100;
  one.send_waited = 800;
  return one;
}

BatchWait a_wait(std::int64_t asked) {
  return {.generation = 1,
          .batch = 0,
          .asked = asked,
          .received = 1400,
          .rebuilt = 1500,
          .rebuild_cpu = 50,
          .rebuild_delay = 0,
          .got = 1500,
          .read_cpu = 30};
}

TEST(DataLoaderBreakdown, RoomInThePipeIsNoCostOfSending) {
  DataLoaderBreakdown found(0);
  const WorkerRecord record = a_record();
  found.add(a_wait(1250), &record, {}, 50, true);
  EXPECT_EQ(found.work[kTransfer], (Kinds{100, 100, 0, 0}));
  EXPECT_EQ(found.work[kHandover], (Kinds{0, 800, 0, 0}));
  EXPECT_EQ(found.rebuilt, (Kinds{80, 50, 0, 0}));
  EXPECT_EQ(sum(found.waits), 1500 - 1250);
}

TEST(DataLoaderBreakdown, AWaitForTheLockCountsForWhatItsHolderComputes) {
  const WorkerRecord record = a_record();
  WorkerRecord next = record;
  next.batch = 1;
  next.begin = 300;
  next.collate = 1600;
  next.end = 1700;
  next.send_key = 0;
  const auto dataset = [&](std::int64_t cpu) {
    next.dataset_cpu = cpu;
    DataLoaderBreakdown found(0);
    found.add(a_wait(250), &record, {}, 50, true, &next);
    EXPECT_DOUBLE_EQ(sum(found.waits), 1500 - 250);
    return sum(found.waits[kDataset]);
  };
  EXPECT_EQ(dataset(0), 0);  // it sleeps, and holds no lock
  EXPECT_NEAR(dataset(650), 500 + 50, 1e-6);
  EXPECT_NEAR(dataset(1300), 900 + 50, 1e-6);
}

TEST(DataLoaderBreakdown, AWaitWithoutARecordIsUnknown) {
  DataLoaderBreakdown found(0);
  found.add(a_wait(250), nullptr, {}, 50, true);
  EXPECT_EQ(found.missing, 1);
  EXPECT_EQ(found.waits[kNowhere], (Kinds{0, 0, 0, 1250}));
}

/// Times of a loop with workers that make, send and hand out batches of random lengths.
class RandomLoop {
 public:
  explicit RandomLoop(unsigned seed) : random_(seed) {
    workers_ = std::uniform_int_distribution<std::int64_t>(1, 4)(random_);
    ends_.assign(static_cast<std::size_t>(workers_), 1000);
    sends_ = ends_;
  }

  WorkerRecord make(std::int64_t batch) {
    const auto worker = static_cast<std::size_t>(batch % workers_);
    WorkerRecord one{};
    one.generation = 1;
    one.batch = batch;
    one.worker = batch % workers_;
    one.begin = ends_[worker] + length();
    one.collate = some(30) ? kUnknown : one.begin + length();
    one.end = std::max(one.begin, one.collate) + length();
    one.dataset_cpu = part(one.collate - one.begin);
    one.dataset_delay = some(5) ? kUnknown : part(one.collate - one.begin - one.dataset_cpu);
    one.collate_cpu = part(one.end - one.collate);
    one.collate_delay = one.dataset_delay == kUnknown ? kUnknown : 0;
    one.samples = 2;
    one.transform = one.transform_cpu = kUnknown;
    one.start_cpu = part(one.begin - 500);
    ends_[worker] = one.end;
    if (some(8)) return one;  // not sent yet
    one.send_key = batch + 1;
    one.send_begin = std::max(one.end, sends_[worker]) + length();
    one.send_end = one.send_begin + length();
    one.send_cpu = part(one.send_end - one.send_begin);
    one.send_delay = part(one.send_end - one.send_begin - one.send_cpu);
    one.send_waited = part(one.send_end - one.send_begin);
    sends_[worker] = one.send_end;
    return one;
  }

  BatchWait wait_for(const WorkerRecord& record) {
    BatchWait wait;
    wait.generation = 1;
    wait.batch = record.batch;
    wait.asked = now_ + length();
    const std::int64_t there = record.sent() ? record.send_end : record.end;
    wait.received = std::max(wait.asked, there) + length();
    wait.rebuilt = wait.received + length();
    wait.got = wait.rebuilt + length();
    wait.rebuild_cpu = part(wait.rebuilt - wait.received);
    wait.rebuild_delay = 0;
    if (some(10)) wait.received = kUnknown;  // by the thread that pins memory
    now_ = wait.got;
    return wait;
  }

 private:
  bool some(int one_in) { return std::uniform_int_distribution(1, one_in)(random_) == 1; }
  std::int64_t length() {
    return some(4) ? 0 : std::uniform_int_distribution<std::int64_t>(1, 2'000'000)(random_);
  }
  std::int64_t part(std::int64_t whole) {
    return std::uniform_int_distribution<std::int64_t>(0,
                                                       std::max<std::int64_t>(0, whole))(random_);
  }

  std::minstd_rand random_;
  std::int64_t workers_ = 1;
  std::int64_t now_ = 0;
  std::vector<std::int64_t> ends_, sends_;  ///< by worker
};

TEST(DataLoaderBreakdown, PartsOfAnyWaitAddUpToIt) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomLoop loop(seed);
    DataLoaderBreakdown found(0);
    std::vector<WorkerRecord> records;
    for (std::int64_t batch = 0; batch < 60; ++batch) records.push_back(loop.make(batch));
    double waited = 0;
    for (const WorkerRecord& record : records) {
      const auto next = std::find_if(records.begin() + record.batch + 1, records.end(),
                                     [&](const auto& one) { return one.worker == record.worker; });
      const BatchWait wait = loop.wait_for(record);
      found.add(wait, &record, {}, 500, true, next == records.end() ? nullptr : &*next);
      waited += static_cast<double>(wait.got - wait.asked);
    }
    EXPECT_NEAR(sum(found.waits), waited, 1e-3);
    EXPECT_NEAR(std::accumulate(found.steady.begin(), found.steady.end(), 0.0), waited, 1e-3);
    for (const PlaceTable* const table : {&found.waits, &found.work})
      for (const Kinds& row : *table)
        for (const double ns : row) ASSERT_GE(ns, -1e-3);
  }
}

TEST(LoopTimeline, RowsOfAnyLoopsAddUpToTheTimeThatPassed) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::minstd_rand random(seed);
    const auto up_to = [&](int most) { return std::uniform_int_distribution(0, most)(random); };
    std::int64_t now = 1000;
    const auto later = [&] { return now += up_to(1000); };
    LoopTimeline timeline(now);
    std::vector<std::shared_ptr<LoopTable>> tables;
    for (int i = 0; i < 3; ++i) tables.push_back(std::make_shared<LoopTable>());
    for (int step = 0; step < 200; ++step) {
      const auto& table = tables[static_cast<std::size_t>(up_to(2))];
      if (!timeline.holds(*table)) {
        timeline.iter_begins(table, later());
        timeline.iter_ended(*table, later());
      } else if (timeline.next_begins(table, later()); up_to(9) == 0) {
        timeline.exhausted(*table, later());
      } else {
        timeline.next_ended(*table, later(), 4);
        if (up_to(3) == 0) timeline.logged_after_next(*table, later());
        if (up_to(3) == 0) {
          const std::int64_t begin = later();
          timeline.logged(begin, later());
        }
        if (up_to(1) == 0) timeline.forward(later());
        if (up_to(1) == 0) {
          timeline.step_begins(later());
          timeline.step_ended(later());
        }
      }
    }
    timeline.close(tables, later());
    std::int64_t steps = 0;
    for (const auto& table : tables) {
      EXPECT_EQ(std::accumulate(table->total.begin(), table->total.end(), std::int64_t{0}),
                now - 1000);
      for (const std::int64_t ns : table->total) EXPECT_GE(ns, 0);
      const std::string rows = table->take_rows();
      EXPECT_GE(std::count(rows.begin(), rows.end(), '\n'), table->steps);
      EXPECT_EQ(table->take_rows(), "");
      steps += table->steps;
    }
    EXPECT_GT(steps, 0);
  }
}

TEST(LoopTimeline, RowsOfLoopsThatMoveToAnotherThreadAddUpToTheTimeThatPassed) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::minstd_rand random(seed);
    const auto up_to = [&](int most) { return std::uniform_int_distribution(0, most)(random); };
    std::int64_t now = 1000;
    const auto later = [&] { return now += up_to(1000); };
    LoopTimeline trainers(now);
    struct Loop {
      std::shared_ptr<LoopTable> table = std::make_shared<LoopTable>();
      std::unique_ptr<LoopTimeline> lane;  // of the thread that it has moved to
    };
    std::vector<Loop> loops(3);
    for (int step = 0; step < 60; ++step) {
      Loop& one = loops[static_cast<std::size_t>(up_to(2))];
      if (one.lane == nullptr && up_to(9) == 0) {
        trainers.forget(*one.table, later());
        one.lane = std::make_unique<LoopTimeline>(now);
        one.lane->take(one.table, now);
      }
      LoopTimeline& timeline = one.lane != nullptr ? *one.lane : trainers;
      if (!timeline.holds(*one.table)) {
        timeline.iter_begins(one.table, later());
        timeline.iter_ended(*one.table, later());
      } else if (timeline.next_begins(one.table, later()); up_to(9) == 0) {
        timeline.exhausted(*one.table, later());
      } else {
        timeline.next_ended(*one.table, later(), 4);
      }
    }
    std::vector<std::shared_ptr<LoopTable>> stayed;
    for (const Loop& one : loops)
      if (one.lane == nullptr) stayed.push_back(one.table);
    trainers.close(stayed, later());
    for (const Loop& one : loops) {
      if (one.lane != nullptr) one.lane->close({one.table}, now);
      EXPECT_EQ(std::accumulate(one.table->total.begin(), one.table->total.end(), std::int64_t{0}),
                now - 1000);
    }
  }
}

TEST(LoopTimeline, WhatTheRecorderDoesBetweenStepsIsNoPartOfThem) {
  LoopTimeline timeline(0);
  const auto table = std::make_shared<LoopTable>();
  timeline.iter_begins(table, 10);
  timeline.iter_ended(*table, 20);
  timeline.next_begins(table, 20);
  timeline.next_ended(*table, 30, 4);
  timeline.forward(32);
  timeline.step_ended(36);
  timeline.logged(40, 1000);
  timeline.close({table}, 1001);
  EXPECT_EQ(table->total[kUpdate], 4);
  EXPECT_EQ(table->total[kLoop], 7);
  EXPECT_EQ(table->total[kLog], 960);
}

TEST(LoopTimeline, TheBodyInWhichAnErrorCameIsNoUpdate) {
  for (const bool abandoned : {false, true})
    for (const bool stepped : {false, true}) {
      LoopTimeline timeline(0);
      const auto table = std::make_shared<LoopTable>();
      timeline.iter_begins(table, 0);
      timeline.iter_ended(*table, 0);
      timeline.next_begins(table, 0);
      timeline.next_ended(*table, 100, 1);
      if (stepped) {
        timeline.step_begins(110);
        timeline.step_ended(120);
      }
      if (abandoned) {  // the exception has left the loop's frame, which drops the iterator
        timeline.abandoned(table, 600);
        timeline.exhausted(*table, 600);
      }
      timeline.close({table}, 600, true);
      EXPECT_EQ(table->total[kLoad] + table->total[kFirstBatch], 100);
      EXPECT_EQ(table->total[kUpdate] + table->total[kLoop], stepped ? 500 : 0) << abandoned;
      EXPECT_EQ(table->total[kBetween], stepped ? 0 : 500) << abandoned;
    }
}

TEST(LoopTimeline, ALoaderThatAlternatesIsPartOfTheLoop) {
  LoopTimeline timeline(0);
  const auto one = std::make_shared<LoopTable>(), other = std::make_shared<LoopTable>();
  std::int64_t now = 0;
  const auto next = [&](const std::shared_ptr<LoopTable>& table, std::int64_t wait) {
    timeline.next_begins(table, now);
    timeline.next_ended(*table, now += wait, 1);
  };
  for (const auto& table : {one, other}) {
    timeline.iter_begins(table, now);
    timeline.iter_ended(*table, now);
  }
  for (int step = 0; step < 10; ++step) {
    next(one, 30);
    next(other, 20);
    now += 50;  // the body
  }
  timeline.close({one, other}, now);
  EXPECT_EQ(one->total[kFirstBatch] + one->total[kLoad], 300);
  EXPECT_EQ(other->total[kFirstBatch] + other->total[kLoad], 200);
  // The first step of either has the begin of the other one's iteration in it.
  EXPECT_EQ(one->total[kLoop] + one->total[kEvaluate], 700);
  EXPECT_GE(one->total[kLoop], 630);
  EXPECT_GE(other->total[kLoop], 720);
  EXPECT_GE(one->turns, 9);
  EXPECT_GE(other->turns, 9);
}

TEST(LoopTimeline, AnEvaluationBetweenTwoStepsIsNoTurn) {
  LoopTimeline timeline(0);
  const auto train = std::make_shared<LoopTable>(), test = std::make_shared<LoopTable>();
  timeline.iter_begins(train, 0);
  timeline.iter_ended(*train, 0);
  timeline.next_begins(train, 0);
  timeline.next_ended(*train, 10, 1);
  timeline.iter_begins(test, 20);
  timeline.iter_ended(*test, 20);
  timeline.next_begins(test, 20);
  timeline.next_ended(*test, 30, 1);
  timeline.next_begins(test, 60);
  timeline.exhausted(*test, 60);
  timeline.next_begins(train, 70);
  timeline.next_ended(*train, 80, 1);
  timeline.close({train, test}, 90);
  EXPECT_EQ(train->turns, 0);
  EXPECT_EQ(train->total[kEvaluate], 40);
  EXPECT_EQ(train->total[kLoop], 30);
}

TEST(LoopTimeline, ALoaderInsideOfAnothersDataSetIsKnown) {
  LoopTimeline timeline(0);
  const auto outer = std::make_shared<LoopTable>(), inner = std::make_shared<LoopTable>();
  timeline.iter_begins(outer, 0);
  timeline.iter_ended(*outer, 0);
  EXPECT_FALSE(timeline.is_inside_another(*inner));
  timeline.next_begins(outer, 0);
  EXPECT_TRUE(timeline.is_inside_another(*inner));
  EXPECT_FALSE(timeline.is_inside_another(*outer));
  timeline.next_ended(*outer, 10, 1);
  EXPECT_FALSE(timeline.is_inside_another(*inner));
  timeline.next_begins(outer, 20);
  timeline.next_failed();
  EXPECT_FALSE(timeline.is_inside_another(*inner));
}

TEST(LoopTimeline, AForwardThatIsNotMarkedComesAsLateAsTheOneBefore) {
  LoopTimeline timeline(0);
  const auto table = std::make_shared<LoopTable>();
  std::int64_t now = 0;
  timeline.iter_begins(table, now);
  timeline.iter_ended(*table, now);
  const auto update_of = [&](std::int64_t forward, std::int64_t step, std::int64_t body) {
    const std::int64_t before = table->total[kUpdate] + table->row.ns[kUpdate];
    timeline.next_begins(table, now);
    timeline.next_ended(*table, now, 4);
    if (forward == 0) timeline.expect_forward();
    timeline.logged_after_next(*table, now + 500);
    now += 500;
    if (forward > 0) timeline.forward(now + forward);
    timeline.step_begins(now + step);
    timeline.step_ended(now + step + 5);
    now += body;
    timeline.next_begins(table, now);
    return table->total[kUpdate] + table->row.ns[kUpdate] - before;
  };
  EXPECT_EQ(update_of(0, 60, 100), 5);  // none was ever marked: from the step's begin
  EXPECT_EQ(update_of(20, 60, 100), 45);
  EXPECT_EQ(update_of(0, 60, 100), 45);
  EXPECT_EQ(update_of(0, 30, 100), 15);
  EXPECT_EQ(update_of(0, 10, 100), 5);  // the step has begun before
  EXPECT_EQ(update_of(50, 60, 100), 15);
  EXPECT_EQ(update_of(0, 60, 100), 15);
  timeline.close({table}, now);
  EXPECT_EQ(table->total[kUpdate] + table->total[kLoop], 7 * 100);
}

TEST(RecordRing, ABatchIsReadAsItWasWritten) {
  RecordRing ring(4, 1);
  RecordRing same(4, 1, ring.path());  // as a worker maps it
  WorkerRecord written = a_record(), found;
  Parts parts;
  written.batch = 6;
  written.transform = 70;
  same.write(written, {5, 7});
  ASSERT_TRUE(ring.read(1, 6, found, parts));
  EXPECT_EQ(parts, (Parts{5, 7}));
  EXPECT_EQ(found.end, 300);
  EXPECT_FALSE(found.sent());
  EXPECT_FALSE(ring.read(2, 6, found, parts));
  EXPECT_FALSE(ring.read(1, 2, found, parts));
  EXPECT_TRUE(ring.holds_later(1, 2));
  EXPECT_FALSE(ring.holds_later(1, 6));
  same.write_sending(6, 300, 1300, {100, 0}, 800);
  ASSERT_TRUE(ring.read(1, 6, found, parts));
  EXPECT_TRUE(found.sent());
  EXPECT_EQ(found.send_waited, 800);
  EXPECT_EQ(ring.made().size(), 1U);
  same.write(written, {5, 7});
  ASSERT_TRUE(ring.read(1, 6, found, parts));
  EXPECT_FALSE(found.sent());
}

TEST(RecordRing, RefusesWhatIsNoRingAndOneThatIsShorter) {
  const RecordRing ring(8, 0);
  EXPECT_NO_THROW(RecordRing(8, 0, ring.path()));
  EXPECT_THROW(RecordRing(9, 0, ring.path()), std::system_error);
  EXPECT_THROW(RecordRing(8, 1, ring.path()), std::system_error);
  EXPECT_THROW(RecordRing(8, 0, "/nonexistent"), std::system_error);
  EXPECT_THROW(RecordRing(8, 0, "/dev/null"), std::system_error);
}

TEST(RecordRing, WhatAProcessLeftHalfWrittenIsNoBatch) {
  const RecordRing ring(16, 0);
  const int file = open(ring.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(file, 0);
  std::minstd_rand random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::int64_t> words(16 * kRecordFields);
    for (std::int64_t& word : words) {
      const auto bits = static_cast<std::uint64_t>(random()) << 32 | random();
      word = static_cast<std::int64_t>(random() % 2 == 0 ? bits : bits % 8);
    }
    const auto size = static_cast<ssize_t>(words.size() * sizeof(words[0]));
    ASSERT_EQ(pwrite(file, words.data(), static_cast<std::size_t>(size), 0), size);
    for (const WorkerRecord& one : ring.made()) {
      EXPECT_GT(one.generation, 0);
      EXPECT_LE(one.begin, one.end);
      EXPECT_TRUE(one.collate == 0 || (one.begin <= one.collate && one.collate <= one.end));
      EXPECT_TRUE(one.sent() || one.send_end == 0);
    }
  }
  close(file);
}

TEST(UsageSampler, MeasuringTakesOnePartIn2000OfTheTime) {
  for (const std::int64_t step : {10'000, 2'000'000, 300'000'000}) {
    UsageSampler sampler;
    std::int64_t measured = 0;
    const std::int64_t steps = 60'000'000'000 / step;
    for (int i = 1; i <= UsageSampler::kAllOf; ++i) EXPECT_TRUE(sampler.due(i * step));
    for (std::int64_t i = UsageSampler::kAllOf + 1; i <= steps; ++i)
      measured += sampler.due(i * step) ? 1 : 0;
    EXPECT_LE(static_cast<double>(measured * UsageSampler::kDetailNs), 1.05 * 60e9 / 2000) << step;
    EXPECT_GE(measured, std::min<std::int64_t>(steps - UsageSampler::kAllOf, 350) / 2) << step;
  }
}

TEST(PartEstimate, IsOneThatNeverChangesAndOneInProportion) {
  PartEstimate fixed, half;
  EXPECT_EQ(fixed.of(500), kUnknown);
  for (std::int64_t whole = 1000; whole < 3000; whole += 100) {
    fixed.learn(whole, 200);
    half.learn(whole, whole / 2);
  }
  for (const std::int64_t whole : {1000, 1700, 9000}) {
    EXPECT_EQ(fixed.of(whole), 200);
    EXPECT_EQ(half.of(whole), whole / 2);
  }
  EXPECT_EQ(fixed.of(150), 150);  // no more than the whole
  EXPECT_EQ(fixed.of(0), 0);
}

TEST(PartEstimate, SumsAreRightForAnyPartAndTheLatestCountMost) {
  std::minstd_rand random(1);
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  for (int kind = 0; kind < 3; ++kind) {
    SCOPED_TRACE(kind);
    PartEstimate estimate;
    for (int i = 0; i < 50; ++i)
      estimate.learn(100'000, 90'000);  // an epoch that was unlike the rest
    double part = 0, estimated = 0;
    for (int i = 0; i < 20'000; ++i) {
      // It computes for a time that varies, waits for a time that varies, and both.
      const std::int64_t cpu = kind == 1 ? 2'000'000 : 1'000'000 + up_to(2'000'000);
      const std::int64_t whole = cpu + (kind == 0 ? 0 : up_to(10'000'000));
      if (up_to(9) == 0) estimate.learn(whole, cpu);
      if (i < 5000) continue;
      part += static_cast<double>(cpu);
      estimated += static_cast<double>(estimate.of(whole));
    }
    EXPECT_NEAR(estimated / part, 1, 0.02);
  }
}

TEST(RecurringUsage, ABatchThatWasNotMeasuredComputedAsThoseThatWere) {
  RecurringUsage usage;
  EXPECT_EQ(usage.estimated(500).cpu, kUnknown);
  const Usage first = usage.measured({0, 0, 0}, {1000, 200, 400});
  EXPECT_EQ(first.cpu, 200);
  EXPECT_EQ(first.delay, 400);
  EXPECT_EQ(usage.estimated(1800).cpu, 200);
  EXPECT_EQ(usage.estimated(1800).delay, 800);  // half of what it did not compute
  EXPECT_EQ(usage.estimated(100).cpu, 100);     // no more than it took
  usage.measured({0, 0, kUnknown}, {1000, 200, kUnknown});
  EXPECT_EQ(usage.estimated(1800).cpu, 200);
  EXPECT_EQ(usage.estimated(1800).delay, kUnknown);
}

TEST(Receipts, ThoseOfOtherBatchesAreEstimatedFromTheMeasuredOnes) {
  Receipts receipts(std::make_shared<ThreadClock>("/proc/thread-self/schedstat"), false);
  Receipts::Estimates estimates;
  const auto received = [&](bool measures, std::int64_t batch, std::int64_t waited) {
    BatchWait wait;
    wait.batch = batch;
    wait.asked = wall_ns() - waited;
    receipts.begin();
    if (measures) {
      receipts.reads();
      receipts.received();
      receipts.rebuilt(batch);
    }
    wait.got = wall_ns();
    if (measures) {
      receipts.tell(wait, estimates);
    } else {
      Receipts::estimate(wait, estimates);
    }
    return wait;
  };
  EXPECT_EQ(received(false, 0, 1'000'000).received, 0);  // nothing is known yet
  const BatchWait measured = received(true, 1, 1'000'000), same = received(false, 2, 1'000'000);
  EXPECT_GT(measured.received, measured.asked);
  EXPECT_NEAR(static_cast<double>(same.got - same.received),
              static_cast<double>(measured.got - measured.received), 1);
  EXPECT_NEAR(static_cast<double>(same.rebuilt - same.received),
              static_cast<double>(measured.rebuilt - measured.received), 1);
  EXPECT_EQ(same.read_cpu, measured.read_cpu);
  EXPECT_EQ(received(false, 3, 0).received, 0);  // in an earlier call
}

}  // namespace
}  // namespace millrace::measure
