// The training loop: batches in, steps taken, every moment of its thread accounted for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "pipeline/loader.h"
#include "pipeline/spans.h"
#include "strategies/strategy.h"

namespace millrace {

struct EpochRecord {
  std::uint32_t epoch = 0;  ///< from 1
  std::uint64_t steps = 0;
  std::uint64_t images = 0;
  SpanTicks ticks{};      ///< from the previous epoch's end
  double train_loss = 0;  ///< mean over the epoch's samples; NaN without a model
  std::optional<Evaluation> evaluation;
};

/// Where a run stands, for a progress bar.
struct TrainProgress {
  std::uint32_t epoch = 0;
  std::uint64_t step_in_epoch = 0;
  std::uint64_t steps_in_epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t images = 0;          ///< of the epoch
  std::optional<double> loss;        ///< the last one read
  const SpanTicks* ticks = nullptr;  ///< of the run
};

/// Hears of everything, on the trainer's thread, inside its log span.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void batch(const Batch&) {}
  virtual void progress(const TrainProgress&) {}
  virtual void step(const StepRecord&) {}
  virtual void epoch(const EpochRecord&) {}
};

struct TrainOptions {
  std::uint64_t epochs = 1;
  std::uint64_t steps = 0;       ///< end after so many; 0: all
  std::uint64_t eval_every = 1;  ///< epochs; 0: only at the end
  struct Delays {                ///< seconds, planted in the span of that name ([debug])
    double next = 0, forward = 0, evaluate = 0, log = 0;
  } delays;
};

struct TrainResult {
  std::uint64_t steps = 0;
  std::uint64_t images = 0;
  std::uint64_t epochs = 0;  ///< complete ones
  bool interrupted = false;
  double train_loss = 0;  ///< of the last epoch
  std::optional<Evaluation> evaluation;
};

class Trainer {
 public:
  /// `make_eval_loader` is called once an evaluation. `stop` set (and the loader interrupted) ends
  /// the run after the step that is under way.
  Trainer(Loader& loader, Strategy& strategy, TrainObserver& observer, SpanClock& spans,
          TrainOptions options, std::function<std::unique_ptr<Loader>()> make_eval_loader,
          const std::atomic<bool>& stop);

  /// Throws what the loader, the strategy or the observer throws; result() and close() still hold.
  void run();
  const TrainResult& result() const { return result_; }
  /// Ends the last step's record at the clock's last change of spans. Call it when all work is
  /// done.
  void close();

 private:
  void begin_step(std::uint32_t epoch, std::uint64_t step);
  void abandon_step();
  bool one_step(std::uint32_t epoch, std::uint64_t step_in_epoch);
  std::optional<Evaluation> evaluate();

  Loader& loader_;
  Strategy& strategy_;
  TrainObserver& observer_;
  SpanClock& spans_;
  const TrainOptions options_;
  std::function<std::unique_ptr<Loader>()> make_eval_loader_;
  const std::atomic<bool>& stop_;

  TrainResult result_;
  StepRecord open_;                     ///< the step under way
  std::optional<StepRecord> finished_;  ///< ended, not yet handed over
  SpanTicks open_since_{};
  SpanTicks finished_since_{};
  SpanTicks epoch_since_{};
  std::uint64_t epoch_images_ = 0;
  std::optional<double> last_loss_;
};

/// `end` minus `begin`, span by span.
SpanTicks difference(const SpanTicks& end, const SpanTicks& begin);

}  // namespace millrace
