// Device queue without a device (contract Two clocks): bounded steps in flight, batches returned
// once they are read, and two timelines that add up.
#include <gtest/gtest.h>

#include <numeric>

#include "millrace/error.h"
#include "strategies/trainer/device_accounting.h"
#include "tests/strategies/simulated_run.h"

namespace millrace::train {
namespace {

/// Events of fake steps.
struct Story {
  std::vector<std::uint64_t> waited;  ///< steps waited for, in order
  std::uint64_t done = 0;             ///< steps that the device has finished by itself
};

class FakeStep final : public QueuedStep {
 public:
  FakeStep(std::uint64_t step, Story& story) : step_(step), story_(story) {}
  bool done() override { return step_ < story_.done; }
  FinishedStep finish() override {
    if (!done()) story_.waited.push_back(step_);
    return {step_, 0.5, 0, 0};
  }

 private:
  std::uint64_t step_;
  Story& story_;
};

std::vector<std::uint64_t> steps_of(const std::vector<FinishedStep>& finished) {
  std::vector<std::uint64_t> steps;
  for (const FinishedStep& one : finished) steps.push_back(one.step);
  return steps;
}

using Steps = std::vector<std::uint64_t>;

TEST(StepQueue, HasAtMostSoManyStepsAndFinishesThemInOrder) {
  Story story;
  StepQueue queue(2);
  measure::SpanClock spans(base::Clock::now());
  spans.enter(measure::Span::forward);
  for (std::uint64_t step = 0; step < 2; ++step) {
    queue.make_room(spans);
    queue.push(std::make_unique<FakeStep>(step, story), spans);
  }
  EXPECT_EQ(spans.current(), measure::Span::forward) << "there was room";
  EXPECT_TRUE(queue.take().empty());
  queue.make_room(spans);
  EXPECT_EQ(spans.current(), measure::Span::device_wait);
  EXPECT_EQ(story.waited, Steps{0});
  queue.push(std::make_unique<FakeStep>(2, story), spans);
  EXPECT_EQ(steps_of(queue.take()), Steps{0});

  spans.enter(measure::Span::forward);
  story.done = 2;  // the device proceeds while the host works
  EXPECT_EQ(steps_of(queue.take()), Steps{1});
  queue.make_room(spans);
  EXPECT_EQ(spans.current(), measure::Span::forward) << "nothing to wait for";
  queue.push(std::make_unique<FakeStep>(3, story), spans);
  queue.drain(spans);
  EXPECT_EQ(spans.current(), measure::Span::device_wait);
  EXPECT_EQ(steps_of(queue.take()), (Steps{2, 3}));
  EXPECT_EQ(story.waited, (Steps{0, 2, 3}));
}

TEST(StepQueue, BySyncClockNoStepOutlastsItsPush) {
  Story story;
  StepQueue queue(0);
  measure::SpanClock spans(base::Clock::now());
  for (std::uint64_t step = 0; step < 3; ++step) {
    queue.make_room(spans);
    queue.push(std::make_unique<FakeStep>(step, story), spans);
    EXPECT_EQ(story.waited.size(), step + 1);
    EXPECT_EQ(steps_of(queue.take()), Steps{step});
  }
  EXPECT_EQ(spans.current(), measure::Span::device_wait);
}

TEST(StepQueue, CountsSubmissionsToADeviceThatHasRunDry) {
  Story story;
  StepQueue queue(3);
  measure::SpanClock spans(base::Clock::now());
  std::uint64_t next = 0;
  const auto submit = [&] {
    queue.make_room(spans);
    queue.push(std::make_unique<FakeStep>(next++, story), spans);
  };
  const auto counts = [&] {
    return std::pair{queue.submissions().steps, queue.submissions().starved};
  };
  submit();
  EXPECT_EQ(counts(), std::pair(0ul, 0ul)) << "nothing came before the first";
  submit();
  EXPECT_EQ(counts(), std::pair(1ul, 0ul)) << "the first is being worked on";
  story.done = 1;
  submit();
  EXPECT_EQ(counts(), std::pair(2ul, 0ul)) << "the second is";
  story.done = 3;
  submit();
  EXPECT_EQ(counts(), std::pair(3ul, 1ul));
  story.done = 4;
  EXPECT_EQ(queue.take().size(), 4u);
  submit();
  EXPECT_EQ(counts(), std::pair(4ul, 2ul)) << "taken or not";
  queue.drain(spans);
  submit();
  EXPECT_EQ(counts(), std::pair(4ul, 2ul)) << "the host has waited for all work";
}

TEST(StepQueue, BySyncClockThereAreNoSubmissionsBehindAnother) {
  Story story;
  StepQueue queue(0);
  measure::SpanClock spans(base::Clock::now());
  for (std::uint64_t step = 0; step < 3; ++step) {
    queue.make_room(spans);
    queue.push(std::make_unique<FakeStep>(step, story), spans);
  }
  EXPECT_EQ(queue.submissions().steps, 0u);
}

class FakeMark final : public DeviceMark {
 public:
  explicit FakeMark(bool& reached) : reached_(reached) {}
  bool reached() override { return reached_; }
  void wait() override { reached_ = true; }

 private:
  bool& reached_;
};

TEST(InFlightBatches, GoBackOnceTheDeviceHasReadThem) {
  const auto plan = std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{{4, 4}, 1},
                                                    OutputOptions{}, Resample::once);
  LoaderOptions options;
  options.workers = 1;
  options.batch = 4;
  options.prefetch = 1;
  options.held = 2;
  options.shuffle.kind = Shuffle::Kind::none;
  Loader loader(std::make_shared<Gray>(40), plan, options);
  ASSERT_EQ(loader.slots(), 3u);
  measure::SpanClock spans(base::Clock::now());
  spans.enter(measure::Span::log);
  InFlightBatches held;
  bool reached[3][2] = {};
  const auto hold = [&](int i) {
    std::vector<OwnedMark> marks;
    for (bool& mark : reached[i]) marks.emplace_back(new FakeMark(mark));
    held.hold(loader.next(), std::move(marks));
  };
  for (int i = 0; i < 3; ++i) hold(i);
  EXPECT_THROW(static_cast<void>(loader.next()), RunError) << "every slot is held";

  reached[0][0] = reached[1][0] = reached[1][1] = true;
  held.keep_at_most(3, spans);
  EXPECT_EQ(held.count(), 3u) << "one device of two has read the first";
  reached[0][1] = true;
  held.keep_at_most(3, spans);
  EXPECT_EQ(held.count(), 1u);
  EXPECT_EQ(spans.current(), measure::Span::log) << "nothing was waited for";
  EXPECT_EQ(loader.next().index(), 3u);

  held.keep_at_most(0, spans);
  EXPECT_EQ(held.count(), 0u);
  EXPECT_EQ(spans.current(), measure::Span::device_wait);
  EXPECT_TRUE(reached[2][0] && reached[2][1]);
}

base::Clock::Ticks sum_of(const DeviceTime& time) {
  return std::accumulate(time.gaps.begin(), time.gaps.end(), time.busy);
}

TEST(DeviceTimeline, TellsGapsApartByWhatTheHostWasDoing) {
  measure::SpanClock spans(base::Clock::now());
  const base::Clock::Ticks begin = spans.since();
  DeviceTimeline timeline(spans);
  const auto enter = [&](measure::Span span) {
    spans.enter(span);
    return spans.since();
  };
  const base::Clock::Ticks load = enter(measure::Span::load);
  const base::Clock::Ticks forward = enter(measure::Span::forward);
  const base::Clock::Ticks log = enter(measure::Span::log);
  const base::Clock::Ticks load2 = enter(measure::Span::load);
  const base::Clock::Ticks forward2 = enter(measure::Span::forward);
  const base::Clock::Ticks end = enter(measure::Span::teardown);

  timeline.step(forward + 1, load2 + 2);  // the device is still busy while the host waits
  timeline.step(forward2 + 3, end);
  const DeviceTime time = timeline.until(end);
  EXPECT_EQ(time.busy, (load2 + 2 - forward - 1) + (end - forward2 - 3));
  measure::SpanTicks gaps{};
  gaps[static_cast<std::size_t>(measure::Span::setup)] = load - begin;
  gaps[static_cast<std::size_t>(measure::Span::load)] = (forward - load) + (forward2 - load2 - 2);
  gaps[static_cast<std::size_t>(measure::Span::forward)] = 1 + 3;
  EXPECT_EQ(time.gaps, gaps);
  EXPECT_EQ(time.gap_load() + time.gap_other() + time.busy, end - begin);
  EXPECT_GT(log, forward);
}

TEST(DeviceTimeline, KeepsApartWhatStepsSetUp) {
  measure::SpanClock spans(base::Clock::now());
  const base::Clock::Ticks begin = spans.since();
  DeviceTimeline timeline(spans);
  timeline.step(begin + 100, begin + 130, /*set_up=*/true);
  timeline.step(begin + 140, begin + 150);
  timeline.step(begin + 145, begin + 170, /*set_up=*/true);
  const DeviceTime time = timeline.until(begin + 200);
  EXPECT_EQ(time.busy, 30 + 10 + 20);
  EXPECT_EQ(time.setup_busy, 30 + 20);
  const auto setup = static_cast<std::size_t>(measure::Span::setup);
  EXPECT_EQ(time.gaps[setup], 100 + 10 + 30);
  EXPECT_EQ(time.setup_gaps[setup], 100);
}

TEST(DeviceTimeline, OverlappingStepsAreCountedOnce) {
  measure::SpanClock spans(base::Clock::now());
  const base::Clock::Ticks begin = spans.since();
  DeviceTimeline timeline(spans);
  timeline.step(begin + 10, begin + 30);
  timeline.step(begin + 20, begin + 40);
  timeline.step(begin + 5, begin + 15);
  const DeviceTime time = timeline.until(begin + 50);
  EXPECT_EQ(time.busy, 30);
  EXPECT_EQ(sum_of(time), 50);
}

TEST(AsyncClock, BothTimelinesAreConserved) {
  TrainOptions options;
  options.epochs = 2;
  for (const int inflight : {0, 1, 2, 5}) {
    const Outcome outcome = run(options, 1, 40, nullptr, {.inflight = inflight});
    SCOPED_TRACE(inflight);
    expect_conserved(outcome);
    const base::Clock::Ticks host =
        std::accumulate(outcome.spans.begin(), outcome.spans.end(), base::Clock::Ticks{0});
    EXPECT_EQ(sum_of(outcome.device), host) << "to the tick";
    EXPECT_NEAR(base::Clock::seconds(outcome.device.busy), 20 * 1e-3, 2e-5) << "what 20 steps take";
    ASSERT_EQ(outcome.recorded.steps.size(), 20u);
    measure::SpanTicks sum{};
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(outcome.recorded.steps[i].step, i + 1);
      for (std::size_t k = 0; k < measure::kSpanCount; ++k)
        sum[k] += outcome.recorded.steps[i].ticks[k];
    }
    EXPECT_EQ(sum, outcome.spans) << "rows add up to the run";
  }
}

TEST(AsyncClock, AStopLeavesNothingBehind) {
  const std::atomic<bool> stop{true};
  const Outcome outcome = run({}, 1, 40, &stop, {.inflight = 2});
  EXPECT_TRUE(outcome.result.interrupted);
  EXPECT_EQ(outcome.result.steps, 0u);
}

/// The device would hold three batches more than there is memory for.
TEST(AsyncClock, ASlotThatTheDeviceHoldsIsWaitedForAndNotAnError) {
  const Outcome outcome = run({}, 20, 40, nullptr, {.inflight = 4, .prefetch = 1, .held = 1});
  EXPECT_EQ(outcome.result.steps, 10u);
  EXPECT_GT(outcome.seconds(measure::Span::device_wait), 0.015);
}

}  // namespace
}  // namespace millrace::train
