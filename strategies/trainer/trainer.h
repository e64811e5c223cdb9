// The training loop: takes batches, runs steps, and accounts for every moment of its thread
// (contract Conservation of time).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "base/private_api.h"
#include "measure/spans.h"
#include "measure/step_record.h"
#include "measure/timeline.h"
#include "measure/track.h"
#include "millrace/loader.h"
#include "strategies/trainer/device_accounting.h"
#include "strategies/trainer/schedule.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// Position of a run between two steps, from which a resumed run starts.
struct Position {
  std::uint64_t steps = 0;         ///< batches done, over all epochs
  std::uint64_t images = 0;        ///< samples of those batches
  std::uint64_t epoch_images = 0;  ///< samples of the open epoch
  /// Samples of the last epoch that was closed, for a run that has to record it again; 0: unknown.
  std::uint64_t closed_images = 0;
  double best_top1 = -1;        ///< best of the evaluations so far; -1: none
  bool evaluation_due = false;  ///< the evaluation after the last step was interrupted
  double train_loss = 0;        ///< if so, loss of the epoch that it belongs to
  double train_top1 = 0;        ///< and accuracy, as EpochRecord::train_top1
  TrainCounts train_counts;     ///< counts of the open epoch
  EarlyStoppingState stopping;  ///< of train.early_stopping

  /// Returns whether the last step's epoch is still to be recorded (or again).
  bool epoch_open() const { return evaluation_due || epoch_images > 0; }
};

struct EpochRecord {
  std::uint32_t epoch = 0;  ///< counted from 1
  std::uint64_t steps = 0;
  std::uint64_t images = 0;
  std::uint64_t new_images = 0;  ///< samples without those of the earlier run; matches `ticks`
  measure::SpanTicks ticks{};    ///< time since the previous epoch's end
  double train_loss = 0;         ///< mean over the epoch's samples; NaN without a model
  /// Share of the epoch's samples whose label got the largest logit; NaN without a model, or if not
  /// all samples have a single label.
  double train_top1 = 0;
  double lr = 0;  ///< rate of its last step
  std::optional<Evaluation> evaluation;
};

/// Progress of a run, for a progress bar.
struct TrainProgress {
  std::uint32_t epoch = 0;
  std::uint64_t step_in_epoch = 0;
  std::uint64_t steps_in_epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t images = 0;                   ///< in the current epoch
  std::optional<double> loss;                 ///< last loss read
  const measure::SpanTicks* ticks = nullptr;  ///< totals of the run
};

/// Receives all events, on the trainer's thread, inside its log span.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  /// Called with each batch. `load`: ticks that it took to load.
  virtual void batch(const Batch&, base::Clock::Ticks /*load*/) {}
  virtual void progress(const TrainProgress&) {}
  virtual void step(const measure::StepRecord&) {}
  virtual void epoch(const EpochRecord&) {}
  /// Writes a checkpoint of `position`, inside the checkpoint span, or copies the state and goes on
  /// writing it meanwhile. `open` is the last step's row so far, which step() has not received yet.
  /// `best`: no evaluation was better.
  virtual void checkpoint(const Position&, const measure::StepRecord& /*open*/, bool /*best*/) {}
  /// Waits until the last checkpoint is complete, inside the checkpoint span. Called before an
  /// epoch is recorded and at the end of the run. Throws why it could not be written.
  virtual void finish_checkpoint() {}
};

struct TrainOptions {
  std::uint64_t epochs = 1;
  std::uint64_t steps = 0;             ///< end after this many steps; 0: all
  std::uint64_t eval_every = 1;        ///< in epochs; 0: only at the end
  std::uint64_t checkpoint_every = 0;  ///< in steps; epochs and the run always end with one
  std::int64_t batch = 1;              ///< samples per batch, over all ranks
  std::uint64_t accumulate = 1;        ///< batches per optimizer step; an epoch's end closes it
  ScheduleOptions schedule;            ///< covers all epochs, even if `steps` ends the run early
  EarlyStoppingOptions stopping;       ///< of train.early_stopping
  Position from;                       ///< position of an earlier run with the same options
  measure::Track<measure::DeviceRecord>* device_track =
      nullptr;     ///< also receives the device's steps as records
  struct Delays {  ///< seconds added to the span of that name ([debug])
    double next = 0, forward = 0, evaluate = 0, log = 0;
  } delays;
};

struct TrainResult {
  std::uint64_t steps = 0;        ///< total, including those of an earlier run
  std::uint64_t images = 0;       ///< total, including those of an earlier run
  std::uint64_t new_images = 0;   ///< this run only
  std::uint64_t rank_images = 0;  ///< this run and this rank only
  std::uint64_t epochs = 0;       ///< complete epochs
  bool interrupted = false;
  bool stopped_early = false;   ///< by train.early_stopping
  EarlyStoppingState stopping;  ///< after the last evaluation
  double train_loss = 0;        ///< loss of the last epoch
  double train_top1 = 0;        ///< accuracy of the last epoch, as EpochRecord::train_top1
  std::optional<Evaluation> evaluation;
};

class MILLRACE_PRIVATE_API Trainer {
 public:
  /// Calls `make_eval_loader` once per evaluation. Setting `stop` (and interrupting the loader)
  /// ends the run after the current optimizer step. Throws UsageError for a schedule that does not
  /// fit the run.
  Trainer(Loader& loader, Strategy& strategy, TrainObserver& observer, measure::SpanClock& spans,
          TrainOptions options, std::function<std::unique_ptr<Loader>()> make_eval_loader,
          const std::atomic<bool>& stop);

  /// Runs the training. Throws what the loader, the strategy or the observer throws; result() and
  /// close() are valid afterwards.
  void run();
  const TrainResult& result() const { return result_; }
  /// Ends the last step's record at the clock's last change of spans. Call it when all work is
  /// done.
  void close();
  /// Returns the device's time up to the clock's last change of spans; empty on the CPU. Call it
  /// after close().
  std::optional<DeviceTime> device_time();

 private:
  /// Takes the steps that the device has finished, and hands over the rows that are then complete.
  void collect();
  /// Waits for the device to finish all steps, then collects.
  void drain();
  void begin_step(std::uint32_t epoch, std::uint64_t step);
  void abandon_step();
  void run_epochs();
  void run_epoch();
  bool train_step(std::uint32_t epoch);
  StepContext place_of(std::uint64_t step) const;
  /// Return the optimizer steps within `steps` steps of one epoch, and of the whole run.
  std::uint64_t rounded_up(std::uint64_t steps) const;
  std::uint64_t updates(std::uint64_t steps) const;
  void checkpoint(bool best);
  void finish_checkpoint();
  std::optional<Evaluation> evaluate();
  void end_epoch(std::uint32_t epoch, std::uint64_t steps);
  /// Ends the run if rank 0 finds that its evaluations no longer improve.
  void consider_stopping(std::uint32_t epoch, const Evaluation& evaluation);
  /// Returns the open epoch's accuracy on its training samples; NaN if not all were counted.
  double train_top1() const;

  Loader& loader_;
  Strategy& strategy_;
  TrainObserver& observer_;
  measure::SpanClock& spans_;
  const TrainOptions options_;
  std::function<std::unique_ptr<Loader>()> make_eval_loader_;
  const std::atomic<bool>& stop_;

  const std::uint64_t steps_in_epoch_;
  const std::uint64_t all_steps_;  ///< steps of the whole run
  const Schedule schedule_;

  TrainResult result_;
  Position position_;
  bool first_ = true;                      ///< no batch has come yet
  std::uint64_t since_checkpoint_ = 0;     ///< in steps
  measure::StepRecord open_;               ///< row of the current step
  std::deque<measure::StepRecord> ended_;  ///< rows that wait for their losses or ticks
  std::uint64_t finished_steps_ = 0;       ///< number of steps that the device has finished
  measure::SpanTicks open_since_{};
  measure::SpanTicks ended_since_{};        ///< start of the last of ended_
  std::optional<DeviceTimeline> timeline_;  ///< until the host is known to be the device
  bool timed_ = false;                      ///< the device has reported times
  measure::SpanTicks epoch_since_{};
  std::uint64_t images_before_epoch_ = 0;  ///< in this run
  std::optional<double> last_loss_;
};

/// Returns the share of samples whose label got the largest logit; NaN without samples.
MILLRACE_PRIVATE_API double top1_of(const Evaluation& evaluation);
/// Returns `end` minus `begin`, span by span.
MILLRACE_PRIVATE_API measure::SpanTicks difference(const measure::SpanTicks& end,
                                                   const measure::SpanTicks& begin);
/// Returns the sum of all load spans.
MILLRACE_PRIVATE_API base::Clock::Ticks load_of(const measure::SpanTicks& ticks);

}  // namespace millrace::train
