// Training run on a simulated device with its wait breakdown, for tests of the breakdown and the
// timeline.
#pragma once

#include <atomic>
#include <memory>
#include <numeric>
#include <utility>

#include "measure/wait_breakdown.h"
#include "millrace/loader.h"
#include "pipeline/readers/storage.h"
#include "strategies/trainer/simulated.h"
#include "strategies/trainer/trainer.h"
#include "study/analysis/bound.h"

namespace millrace::study {

using measure::Part;

struct ExplainedRun {
  measure::WaitBreakdown blame;
  measure::SpanTicks spans{};
  LoaderStats stats;
  LoaderOptions options;
  std::uint64_t images = 0;

  double load() const { return base::Clock::seconds(train::load_of(spans)); }
  double operator[](Part part) const { return blame.seconds()[static_cast<std::size_t>(part)]; }
  /// Returns the verdict as if no other program had run: without waits for cores and wake-ups.
  BoundVerdict calm_verdict() const {
    measure::PartSeconds load = blame.steady_seconds();
    for (const Part part : {Part::cores, Part::handover}) load[static_cast<std::size_t>(part)] = 0;
    return classify({.load = load,
                     .update_s = measure::SpanSeconds(spans).update,
                     .images = images,
                     .workers = options.workers,
                     .io_threads = options.io_threads,
                     .cores = 2,
                     .read_s = stats.read.wall_s,
                     .decode_s = stats.decode.wall_s,
                     .augment_s = stats.augment.wall_s,
                     .busy_s = stats.busy_s - stats.core_wait_s,
                     .read_bytes = stats.read.bytes});
  }
};

class BreakdownObserver final : public train::TrainObserver {
 public:
  explicit BreakdownObserver(measure::WaitBreakdown& blame) : breakdown_(blame) {}
  void batch(const Batch& batch, base::Clock::Ticks load) override {
    breakdown_.add(batch.history(), load);
  }

 private:
  measure::WaitBreakdown& breakdown_;
};

/// `timeline`, if not null, receives the records of the trainer, the loader and the storage.
inline ExplainedRun explained_run(std::shared_ptr<const Reader> reader,
                                  std::shared_ptr<const Transform> transform, LoaderOptions options,
                                  double update_ms, measure::Timeline* timeline = nullptr) {
  static const std::atomic<bool> never{false};
  ExplainedRun run;
  if (timeline != nullptr) {
    options.timeline = timeline->add_loader("train", options.workers, options.io_threads);
    if (options.storage != nullptr) options.storage->record_to(timeline->shared_storage());
  }
  run.options = options;
  BreakdownObserver observer(run.blame);
  const auto strategy = train::make_simulated(update_ms);
  measure::SpanClock spans(base::Clock::now());
  if (timeline != nullptr) spans.record_to(&timeline->trainer());
  Loader loader(std::move(reader), std::move(transform), options);
  train::TrainOptions training;
  training.epochs = options.epochs;
  training.batch = options.batch;
  if (timeline != nullptr) training.device_track = &timeline->device();
  train::Trainer trainer(
      loader, *strategy, observer, spans, training, [] { return nullptr; }, never);
  trainer.run();
  spans.enter(measure::Span::teardown);
  trainer.close();
  run.images = trainer.result().images;
  run.spans = spans.ticks();
  run.stats = loader.stats();
  run.blame.complete(train::load_of(run.spans));
  return run;
}

}  // namespace millrace::study
