// Planted and simulated times are attributed correctly, to 2%. A busy machine can only lengthen a
// sleep, so the closest of a few attempts counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "strategies/control/control_channel.h"
#include "tests/attempts.h"
#include "tests/strategies/simulated_run.h"

namespace millrace::train {
namespace {

constexpr double kTolerance = 0.02;

double planted(double TrainOptions::Delays::*where, double seconds,
               std::initializer_list<measure::Span> spans) {
  TrainOptions options;
  options.delays.*where = seconds;
  const Outcome outcome = run(options, 0);
  double sum = 0;
  for (const measure::Span span : spans) sum += outcome.seconds(span);
  return sum;
}

TEST(TrainerTiming, PlantedDelaysLandInTheirSpans) {
  using Delays = TrainOptions::Delays;
  EXPECT_TRUE(test::close_to(
      0.3, kTolerance, [] { return planted(&Delays::forward, 0.03, {measure::Span::forward}); }));
  EXPECT_TRUE(test::close_to(0.3, kTolerance,
                             [] { return planted(&Delays::log, 0.03, {measure::Span::log}); }));
  EXPECT_TRUE(test::close_to(
      0.3, kTolerance, [] { return planted(&Delays::evaluate, 0.3, {measure::Span::evaluate}); }));
  EXPECT_TRUE(test::close_to(0.3, kTolerance, [] {
    return planted(&Delays::next, 0.03, {measure::Span::first_batch, measure::Span::load});
  }));
}

TEST(TrainerTiming, ASimulatedStepTakesItsTime) {
  EXPECT_TRUE(test::close_to(0.1, kTolerance,
                             [] { return measure::SpanSeconds(run({}, 5, 80).spans).update; }));
}

/// Runs 20 steps with `seconds` of device work in all, and with `delays` on the host.
Outcome queued_run(int inflight, double update_ms, double TrainOptions::Delays::*where,
                   double seconds) {
  TrainOptions options;
  options.delays.*where = seconds;
  return run(options, update_ms, 80, nullptr, {.inflight = inflight});
}

TEST(TrainerTiming, AQueueLetsTheHostLoadWhileTheDeviceWorks) {
  using Delays = TrainOptions::Delays;
  // Compares with the measured load, so that late wake-ups of the loader are no error.
  const auto stepping = [](const Outcome& outcome, double update) {
    const measure::SpanSeconds seconds(outcome.spans);
    EXPECT_GT(seconds.load, 20 * 0.01);
    return (seconds.load + seconds.update) / (seconds.load + update);
  };
  EXPECT_TRUE(test::close_to(
      1, kTolerance, [&] { return stepping(queued_run(0, 10, &Delays::next, 0.01), 20 * 0.01); }));
  // The last step overlaps with nothing.
  EXPECT_TRUE(test::close_to(
      1, kTolerance, [&] { return stepping(queued_run(2, 10, &Delays::next, 0.01), 0.01); }));
}

/// Compares with the host's own spans, so that late wake-ups are no error.
TEST(TrainerTiming, EachTimelineShowsWhatItWaitsFor) {
  using Delays = TrainOptions::Delays;
  const auto load_of = [](const Outcome& outcome) {
    return measure::SpanSeconds(outcome.spans).load;
  };
  // A faster loader: once the device has begun it is never idle, and the host waits for it.
  EXPECT_TRUE(test::close_to(1, kTolerance, [&] {
    const Outcome outcome = queued_run(2, 10, &Delays::next, 0.004);
    return (load_of(outcome) + outcome.seconds(measure::Span::device_wait)) /
           (outcome.seconds(measure::Span::first_batch) + 20 * 0.01);
  }));
  // A slower loader: the device is idle while it waits for each batch but the first.
  EXPECT_TRUE(test::close_to(1, kTolerance, [&] {
    const Outcome outcome = queued_run(2, 4, &Delays::next, 0.01);
    return base::Clock::seconds(outcome.device.gap_load()) / (load_of(outcome) - 19 * 0.004);
  }));
  // A slow record: the device does not wait for the batch.
  EXPECT_TRUE(test::close_to(1, kTolerance, [&] {
    const Outcome outcome = queued_run(2, 4, &Delays::log, 0.01);
    const auto log = static_cast<std::size_t>(measure::Span::log);
    return base::Clock::seconds(outcome.device.gaps[log]) /
           (outcome.seconds(measure::Span::log) - 20 * 0.004);
  }));
}

TEST(TrainerTiming, ASignOfProgressCostsNothing) {
  const auto channel = ControlChannel::serve({0, 1, 60, 0, {}}, "127.0.0.1");
  constexpr int kCalls = 1'000'000;
  double least_ns = 1e9;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::int64_t begin = base::Clock::thread_cpu_ns();
    for (std::uint64_t i = 0; i < kCalls; ++i) channel->progress(i, (i & 1) != 0);
    least_ns =
        std::min(least_ns, static_cast<double>(base::Clock::thread_cpu_ns() - begin) / kCalls);
  }
  EXPECT_LT(least_ns, 50);
  RecordProperty("ns", std::to_string(least_ns));
  channel->goodbye();
}

}  // namespace
}  // namespace millrace::train
