// Bottleneck verdicts: which figures lead to which word and sentence.
#include "study/analysis/bound.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace::study {
namespace {

using measure::Part;

/// Figures of a run of 10 s with two workers on two cores, whose load has the parts `load`.
BoundFigures figures(std::initializer_list<std::pair<Part, double>> load) {
  BoundFigures made;
  double sum = 0;
  for (const auto& [part, seconds] : load) {
    made.load[static_cast<std::size_t>(part)] = seconds;
    sum += seconds;
  }
  made.update_s = 10 - sum;
  made.images = 1000;
  made.workers = 2;
  made.cores = 2;
  made.read_s = 1;
  made.decode_s = 14;
  made.augment_s = 3;
  made.busy_s = 18;
  made.read_bytes = 100'000'000;
  return made;
}

TEST(Bound, TheLargestPartOfLoad) {
  const BoundVerdict verdict = classify(figures(
      {{Part::storage, 0.4}, {Part::decode, 3.2}, {Part::augment, 0.5}, {Part::handover, 0.1}}));
  EXPECT_EQ(verdict.bound, Bottleneck::decode);
  EXPECT_NEAR(verdict.share, 3.2 / 4.2, 1e-12);
  EXPECT_NEAR(verdict.workers_needed, 18 / 5.8, 1e-12);
  EXPECT_EQ(verdict.sentence, "decode-bound: 76% of load; 3.1 workers needed, you have 2");

  EXPECT_EQ(classify(figures({{Part::augment, 2}, {Part::decode, 1}})).bound, Bottleneck::augment);
  EXPECT_EQ(classify(figures({{Part::cores, 2}, {Part::decode, 1}})).sentence,
            "cores-bound: 67% of load; 3 threads on 2 cores");
  EXPECT_EQ(classify(figures({{Part::storage, 6}, {Part::decode, 1}})).sentence,
            "storage-bound: 86% of load; 10.0 MB/s are read, 33.3 needed");
  EXPECT_EQ(
      classify(figures({{Part::handover, 2}, {Part::epoch_boundary, 1}, {Part::decode, 2}})).bound,
      Bottleneck::overhead);
}

TEST(Bound, LittleLoadIsTheDevice) {
  const BoundVerdict verdict = classify(figures({{Part::decode, 0.2}}));
  EXPECT_EQ(verdict.bound, Bottleneck::device);
  EXPECT_EQ(verdict.sentence,
            "device-bound: load is 2.0% of the step; 1.8 workers needed, you have 2");
  EXPECT_EQ(classify(figures({{Part::decode, 0.99}})).bound, Bottleneck::device);
  EXPECT_EQ(classify(figures({{Part::decode, 1.01}})).bound, Bottleneck::decode);
}

TEST(Bound, CheckpointsBesideTheStepsAreNamed) {
  BoundFigures one = figures({{Part::decode, 0.2}});
  one.checkpoint_s = 1;
  EXPECT_EQ(classify(one).sentence,
            "device-bound: load is 2.0% of the step; 1.8 workers needed, you have 2");
  one.checkpoint_s = 15;
  EXPECT_EQ(classify(one).bound, Bottleneck::device) << "of a step";
  EXPECT_EQ(classify(one).sentence,
            "device-bound: load is 2.0% of the step; 1.8 workers needed, you have 2; checkpoints "
            "take 60% of the time (train.checkpoints=false writes none)");
}

TEST(Bound, WithoutWorkersLoadAndUpdateTakeTurns) {
  BoundFigures one = figures({{Part::decode, 3}, {Part::augment, 1}});
  one.workers = 0;
  one.busy_s = 4;
  EXPECT_EQ(classify(one).bound, Bottleneck::device);
  EXPECT_EQ(classify(one).sentence,
            "device-bound: load is 40% of the step; load and update take turns: 0.7 workers "
            "needed, you have none");
  one.update_s = 3;
  EXPECT_EQ(classify(one).bound, Bottleneck::decode);
}

TEST(Bound, TheQueueCountsForWhatTheWorkersDo) {
  // Busy for 90% of the time, 14/18 of it decoding.
  EXPECT_EQ(classify(figures({{Part::queue, 2}, {Part::storage, 1}, {Part::augment, 0.8}})).bound,
            Bottleneck::decode);
  // Idle workers: the overhead is the only explanation.
  BoundFigures idle = figures({{Part::queue, 2}, {Part::storage, 1}});
  idle.busy_s = 1;
  EXPECT_EQ(classify(idle).bound, Bottleneck::overhead);
  // Busy workers without a core.
  BoundFigures starved = figures({{Part::queue, 2}, {Part::storage, 0.5}});
  starved.core_wait_s = 12;
  EXPECT_EQ(classify(starved).bound, Bottleneck::cores);
  // Reads by I/O threads are not the workers' work.
  BoundFigures ahead = figures({{Part::queue, 2}, {Part::decode, 1}});
  ahead.io_threads = 4;
  ahead.read_s = 40;
  EXPECT_EQ(classify(ahead).bound, Bottleneck::decode);
}

/// Figures of ten seconds by the async clock: the host waits half of its time for batches.
BoundFigures async(const DeviceFigures& device) {
  BoundFigures made = figures({{Part::decode, 5}});
  made.device = device;
  made.device->asynchronous = true;
  made.device->submissions = 100;
  return made;
}

TEST(Bound, AQueuedDeviceIsJudgedByItsOwnTimeline) {
  // It worked on what was queued while the host waited for the next batch.
  const BoundVerdict hidden = classify(async({.busy_s = 9.9, .gap_load_s = 0.1, .wait_s = 4}));
  EXPECT_EQ(hidden.bound, Bottleneck::device);
  EXPECT_NEAR(hidden.load_share, 0.01, 1e-12);
  EXPECT_EQ(hidden.sentence,
            "device-bound: load is 1.0% of the step; 1.8 workers needed, you have 2");
  const BoundVerdict starved = classify(async({.busy_s = 5, .gap_load_s = 5, .starved = 100}));
  EXPECT_EQ(starved.bound, Bottleneck::decode);
  EXPECT_NEAR(starved.load_share, 0.5, 1e-12);
}

TEST(Bound, ADeviceThatWaitsForTheHostsWorkIsHostBound) {
  const BoundVerdict gaps = classify(async({.busy_s = 2, .gap_host_s = 8, .starved = 99}));
  EXPECT_EQ(gaps.bound, Bottleneck::host);
  EXPECT_NEAR(gaps.share, 0.8, 1e-12);
  EXPECT_EQ(gaps.sentence,
            "host-bound: the device spends 80% of its time waiting for the host between steps; it "
            "was already idle at 99% of submissions");
  EXPECT_EQ(name_of(gaps.bound), "host");
  // Waits within a step are hidden in busy_s, but the queue was empty at every submission.
  EXPECT_EQ(classify(async({.busy_s = 9.8, .gap_host_s = 0.2, .starved = 99})).bound,
            Bottleneck::host);
}

TEST(Bound, AHostThatWaitsForTheDeviceIsNotWhatBinds) {
  EXPECT_EQ(classify(async({.busy_s = 8, .gap_host_s = 2, .wait_s = 1.1, .starved = 90})).bound,
            Bottleneck::device);
  EXPECT_EQ(classify(async({.busy_s = 9.8, .gap_host_s = 0.2, .starved = 10})).bound,
            Bottleneck::device)
      << "no gaps";
  // Set-up steps are not counted: without them the host waited for 1.1 s of 11, not of 90.
  BoundFigures long_setup = async({.busy_s = 8, .gap_host_s = 2, .wait_s = 1.2, .starved = 90});
  long_setup.update_s += 79;
  EXPECT_EQ(classify(long_setup).bound, Bottleneck::host);
  long_setup.device->setup_s = 79;
  EXPECT_EQ(classify(long_setup).bound, Bottleneck::device);
  // The host waited in the set-up only: in all other steps it was the one that was waited for.
  long_setup.device->setup_wait_s = 1.15;
  EXPECT_EQ(classify(long_setup).bound, Bottleneck::host);
  // By the sync clock every submission finds the device idle, and gaps are part of the step.
  BoundFigures sync = async({.busy_s = 2, .gap_host_s = 8});
  sync.load = {};
  sync.update_s = 10;
  sync.device->asynchronous = false;
  EXPECT_EQ(classify(sync).bound, Bottleneck::device);
}

TEST(Bound, FewStepsHaveNoVerdictButWhatIsMissing) {
  BoundFigures one = figures({{Part::decode, 8}});
  one.steps = 1;
  EXPECT_EQ(name_of(classify(one).bound), "too short");
  EXPECT_EQ(classify(one).sentence, "too short: 1 step, and a verdict needs 20: 19 more");
  EXPECT_TRUE(std::isnan(classify(one).workers_needed));
  one.steps = 19;
  EXPECT_EQ(classify(one).sentence, "too short: 19 steps, and a verdict needs 20: 1 more");
  one.steps = 20;
  EXPECT_EQ(classify(one).bound, Bottleneck::decode);
}

TEST(Bound, OtherProgramsAreNamedWhereTheyShow) {
  BoundFigures busy = figures({{Part::cores, 2}, {Part::decode, 1}});
  busy.others = 0.63;
  EXPECT_EQ(name_of(classify(busy).bound), "other programs");
  EXPECT_EQ(classify(busy).sentence,
            "other programs: they took 63% of the machine, and waits for a core are 67% of load; 3 "
            "threads on 2 cores; repeat the run on a quiet machine");
  busy.others = 0.05;
  EXPECT_EQ(classify(busy).sentence, "cores-bound: 67% of load; 3 threads on 2 cores");
  busy.workers = 1;
  EXPECT_EQ(classify(busy).sentence, "cores-bound: 67% of load; 2 threads on 2 cores") << "its own";
  busy.others = {};
  EXPECT_EQ(classify(busy).sentence,
            "cores-bound: 67% of load; 2 threads on 2 cores, which other programs use");
  busy.update_threads = 2;
  EXPECT_EQ(classify(busy).sentence, "cores-bound: 67% of load; 3 threads on 2 cores");

  BoundFigures update = figures({{Part::decode, 0.2}});
  update.others = 0.4;
  EXPECT_EQ(classify(update).bound, Bottleneck::device) << "updates that do not vary";
  update.update_spread = 30;
  EXPECT_EQ(classify(update).sentence,
            "other programs: they took 40% of the machine, and one update in ten takes 30.0 times "
            "the median or more; repeat the run on a quiet machine");
  update.others = 0.02;
  EXPECT_EQ(classify(update).bound, Bottleneck::device) << "its own variation";
}

TEST(Bound, SmallSharesAreNotZero) {
  BoundFigures little = figures({{Part::decode, 0.0001}});
  little.busy_s = 0.01;
  EXPECT_EQ(classify(little).sentence,
            "device-bound: load is under 0.1% of the step; under 0.1 workers needed, you have 2");
  little.load = {};
  EXPECT_TRUE(classify(little).sentence.starts_with("device-bound: load is 0% of the step"));
}

TEST(Bound, NothingMeasuredIsNoLoad) {
  const BoundVerdict verdict = classify({});
  EXPECT_EQ(verdict.load_share, 0);
  EXPECT_EQ(verdict.workers_needed, 0);
  EXPECT_EQ(name_of(verdict.bound), "device");
}

TEST(Bound, ALoaderAloneHasNoDevice) {
  BoundFigures bench = figures({{Part::decode, 3}, {Part::augment, 1}});
  bench.update_s = 0;
  EXPECT_EQ(classify(bench).sentence, "decode-bound: 75% of load");
}

}  // namespace
}  // namespace millrace::study
