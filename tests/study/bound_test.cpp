// Bottleneck verdicts: which figures lead to which word and sentence.
#include "study/analysis/bound.h"

#include <gtest/gtest.h>

namespace millrace::study {
namespace {

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
  const BoundVerdict verdict = judge(figures(
      {{Part::storage, 0.4}, {Part::decode, 3.2}, {Part::augment, 0.5}, {Part::handover, 0.1}}));
  EXPECT_EQ(verdict.bound, Bottleneck::decode);
  EXPECT_NEAR(verdict.share, 3.2 / 4.2, 1e-12);
  EXPECT_NEAR(verdict.workers_needed, 18 / 5.8, 1e-12);
  EXPECT_EQ(verdict.sentence, "decode-bound: 76% of load; 3.1 workers needed, you have 2");

  EXPECT_EQ(judge(figures({{Part::augment, 2}, {Part::decode, 1}})).bound, Bottleneck::augment);
  EXPECT_EQ(judge(figures({{Part::cores, 2}, {Part::decode, 1}})).sentence,
            "cores-bound: 67% of load; 3 threads on 2 cores");
  EXPECT_EQ(judge(figures({{Part::storage, 6}, {Part::decode, 1}})).sentence,
            "storage-bound: 86% of load; 10.0 MB/s are read, 33.3 needed");
  EXPECT_EQ(
      judge(figures({{Part::handover, 2}, {Part::epoch_boundary, 1}, {Part::decode, 2}})).bound,
      Bottleneck::overhead);
}

TEST(Bound, LittleLoadIsTheDevice) {
  const BoundVerdict verdict = judge(figures({{Part::decode, 0.2}}));
  EXPECT_EQ(verdict.bound, Bottleneck::device);
  EXPECT_EQ(verdict.sentence,
            "device-bound: load is 2.0% of the step; 1.8 workers needed, you have 2");
  EXPECT_EQ(judge(figures({{Part::decode, 0.99}})).bound, Bottleneck::device);
  EXPECT_EQ(judge(figures({{Part::decode, 1.01}})).bound, Bottleneck::decode);
}

TEST(Bound, WithoutWorkersLoadAndUpdateTakeTurns) {
  BoundFigures one = figures({{Part::decode, 3}, {Part::augment, 1}});
  one.workers = 0;
  one.busy_s = 4;
  EXPECT_EQ(judge(one).bound, Bottleneck::device);
  EXPECT_EQ(judge(one).sentence,
            "device-bound: load is 40% of the step; load and update take turns: 0.7 workers "
            "needed, you have none");
  one.update_s = 3;
  EXPECT_EQ(judge(one).bound, Bottleneck::decode);
}

TEST(Bound, TheQueueCountsForWhatTheWorkersDo) {
  // Busy for 90% of the time, 14/18 of it decoding.
  EXPECT_EQ(judge(figures({{Part::queue, 2}, {Part::storage, 1}, {Part::augment, 0.8}})).bound,
            Bottleneck::decode);
  // Idle workers: the overhead is the only explanation.
  BoundFigures idle = figures({{Part::queue, 2}, {Part::storage, 1}});
  idle.busy_s = 1;
  EXPECT_EQ(judge(idle).bound, Bottleneck::overhead);
  // Busy workers without a core.
  BoundFigures starved = figures({{Part::queue, 2}, {Part::storage, 0.5}});
  starved.core_wait_s = 12;
  EXPECT_EQ(judge(starved).bound, Bottleneck::cores);
  // Reads by I/O threads are not the workers' work.
  BoundFigures ahead = figures({{Part::queue, 2}, {Part::decode, 1}});
  ahead.io_threads = 4;
  ahead.read_s = 40;
  EXPECT_EQ(judge(ahead).bound, Bottleneck::decode);
}

TEST(Bound, NothingMeasuredIsNoLoad) {
  const BoundVerdict verdict = judge({});
  EXPECT_EQ(verdict.load_share, 0);
  EXPECT_EQ(verdict.workers_needed, 0);
  EXPECT_EQ(name_of(verdict.bound), "device");
}

TEST(Bound, ALoaderAloneHasNoDevice) {
  BoundFigures bench = figures({{Part::decode, 3}, {Part::augment, 1}});
  bench.update_s = 0;
  EXPECT_EQ(judge(bench).sentence, "decode-bound: 75% of load");
}

}  // namespace
}  // namespace millrace::study
