// Training run on a simulated device, in memory, for tests of the trainer.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "augment/plan/plan.h"
#include "strategies/trainer/simulated.h"
#include "strategies/trainer/trainer.h"

namespace millrace::train {

class Gray final : public Reader {
 public:
  explicit Gray(std::uint64_t count) {
    info_.count = count;
    info_.path = "memory";
    info_.split = "train";
    info_.size = {4, 4};
    info_.channels = 1;
    info_.classes.resize(2);
  }
  Sample read(std::uint64_t index, Buffer&) const override {
    return {pixels_, static_cast<std::int64_t>(index % 2)};
  }
  std::string name(std::uint64_t index) const override { return std::to_string(index); }

 private:
  std::vector<std::uint8_t> pixels_ = std::vector<std::uint8_t>(16 + kTailSlack);
};

struct Recorded final : TrainObserver {
  void progress(const TrainProgress& now) override {
    if (on_progress) on_progress(now);
  }
  void step(const measure::StepRecord& record) override { steps.push_back(record); }
  void epoch(const EpochRecord& record) override { epochs.push_back(record); }
  void checkpoint(const Position& position, const measure::StepRecord&, bool) override {
    if (on_checkpoint) on_checkpoint(position);
  }
  void finish_checkpoint() override {
    if (on_finish) on_finish();
  }
  std::vector<measure::StepRecord> steps;
  std::vector<EpochRecord> epochs;
  std::function<void(const TrainProgress&)> on_progress;
  std::function<void(const Position&)> on_checkpoint;
  std::function<void()> on_finish;
};

struct Outcome {
  Recorded recorded;
  TrainResult result;
  measure::SpanTicks spans{};
  double least_wall = 0;  ///< read within the run, so at most what its spans add up to
  double wall = 0;        ///< read around the run
  DeviceTime device;
  double seconds(measure::Span span) const {
    return base::Clock::seconds(spans[static_cast<std::size_t>(span)]);
  }
};

/// Settings of train.clock=async, and the memory for batches.
struct Queue {
  int inflight = 0;  ///< 0: sync
  int prefetch = 4;
  int held = 0;  ///< additional batches that the loader has memory for; 0: as the device asks
};

inline Outcome run(TrainOptions options, double update_ms, std::uint64_t count = 40,
                   const std::atomic<bool>* stop = nullptr, const Queue& queue = {},
                   Recorded observer = {}) {
  static const std::atomic<bool> never{false};
  Outcome outcome;
  outcome.recorded = std::move(observer);
  const auto reader = std::make_shared<Gray>(count);
  const auto plan = std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{{4, 4}, 1},
                                                    OutputOptions{}, Resample::once);
  LoaderOptions loader_options;
  loader_options.workers = 1;
  loader_options.batch = 4;
  loader_options.epochs = options.epochs;
  loader_options.prefetch = queue.prefetch;
  const auto strategy = make_simulated(update_ms, queue.inflight);
  loader_options.held = queue.held > 0 ? queue.held : strategy->batches_held();
  const std::int64_t begin = base::Clock::steady_ns();
  measure::SpanClock spans(base::Clock::now());
  const std::int64_t begun = base::Clock::steady_ns();
  Loader loader(reader, plan, loader_options);
  Trainer trainer(
      loader, *strategy, outcome.recorded, spans, options, [] { return nullptr; },
      stop != nullptr ? *stop : never);
  trainer.run();
  outcome.result = trainer.result();
  outcome.least_wall = static_cast<double>(base::Clock::steady_ns() - begun) * 1e-9;
  spans.enter(measure::Span::teardown);
  outcome.wall = static_cast<double>(base::Clock::steady_ns() - begin) * 1e-9;
  trainer.close();
  outcome.spans = spans.ticks();
  if (const auto device = trainer.device_time()) outcome.device = *device;
  return outcome;
}

/// Expects the spans to add up to the wall time of the run, wherever the thread lost its core. The
/// two clocks may differ by the error of the time-stamp counter's rate.
inline void expect_conserved(const Outcome& outcome) {
  const double total = measure::SpanSeconds(outcome.spans).total();
  constexpr double kRateError = 1e-3;
  EXPECT_GE(total, outcome.least_wall * (1 - kRateError));
  EXPECT_LE(total, outcome.wall * (1 + kRateError));
}

}  // namespace millrace::train
