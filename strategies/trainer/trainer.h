// The training loop: batches in, steps taken, every moment of its thread accounted for.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "millrace/loader.h"
#include "pipeline/loader/spans.h"
#include "strategies/trainer/device_timeline.h"
#include "strategies/trainer/schedule.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// Where a run stands between two steps: what a resumed run starts from.
struct Position {
  std::uint64_t steps = 0;         ///< batches done, over all epochs
  std::uint64_t images = 0;        ///< samples of them
  std::uint64_t epoch_images = 0;  ///< samples of the open epoch
  double best_top1 = -1;           ///< of the evaluations so far; -1: there was none
  bool evaluation_due = false;     ///< the evaluation after the last step was cut short
  double train_loss = 0;           ///< then: of the epoch that it belongs to

  /// Whether the epoch of the last step is to be recorded (again).
  bool epoch_open() const { return evaluation_due || epoch_images > 0; }
};

struct EpochRecord {
  std::uint32_t epoch = 0;  ///< from 1
  std::uint64_t steps = 0;
  std::uint64_t images = 0;
  std::uint64_t new_images = 0;  ///< without those of an earlier run that was taken up: in `ticks`
  pipeline::SpanTicks ticks{};   ///< from the previous epoch's end
  double train_loss = 0;         ///< mean over the epoch's samples; NaN without a model
  double lr = 0;                 ///< of its last step
  std::optional<Evaluation> evaluation;
};

/// Where a run stands, for a progress bar.
struct TrainProgress {
  std::uint32_t epoch = 0;
  std::uint64_t step_in_epoch = 0;
  std::uint64_t steps_in_epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t images = 0;                    ///< of the epoch
  std::optional<double> loss;                  ///< the last one read
  const pipeline::SpanTicks* ticks = nullptr;  ///< of the run
};

/// Hears of everything, on the trainer's thread, inside its log span.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  /// `load`: what its load took, in ticks.
  virtual void batch(const Batch&, base::Clock::Ticks /*load*/) {}
  virtual void progress(const TrainProgress&) {}
  virtual void step(const pipeline::StepRecord&) {}
  virtual void epoch(const EpochRecord&) {}
  /// To write a checkpoint of `position`, inside the checkpoint span. `open` is the row of the last
  /// step so far, which step() has not been given yet. `best`: no evaluation was better.
  virtual void checkpoint(const Position&, const pipeline::StepRecord& /*open*/, bool /*best*/) {}
};

struct TrainOptions {
  std::uint64_t epochs = 1;
  std::uint64_t steps = 0;             ///< end after so many; 0: all
  std::uint64_t eval_every = 1;        ///< epochs; 0: only at the end
  std::uint64_t checkpoint_every = 0;  ///< steps; an epoch's and the run's end always have one
  std::int64_t batch = 1;              ///< samples a batch, over all ranks
  std::uint64_t accumulate = 1;        ///< batches an optimiser step; an epoch's end closes it
  ScheduleOptions schedule;            ///< over all epochs, also where `steps` ends the run early
  Position from;                       ///< where an earlier run of the same options left off
  pipeline::Track<pipeline::DeviceRecord>* device_track =
      nullptr;     ///< the device's steps are records there, too
  struct Delays {  ///< seconds, planted in the span of that name ([debug])
    double next = 0, forward = 0, evaluate = 0, log = 0;
  } delays;
};

struct TrainResult {
  std::uint64_t steps = 0;        ///< in all, with those of an earlier run
  std::uint64_t images = 0;       ///< the same
  std::uint64_t new_images = 0;   ///< of this run alone
  std::uint64_t rank_images = 0;  ///< of this run and this rank alone
  std::uint64_t epochs = 0;       ///< complete ones
  bool interrupted = false;
  double train_loss = 0;  ///< of the last epoch
  std::optional<Evaluation> evaluation;
};

class Trainer {
 public:
  /// `make_eval_loader` is called once an evaluation. `stop` set (and the loader interrupted) ends
  /// the run after the optimiser step that is under way. Throws UsageError for a schedule that the
  /// run cannot have.
  Trainer(Loader& loader, Strategy& strategy, TrainObserver& observer, pipeline::SpanClock& spans,
          TrainOptions options, std::function<std::unique_ptr<Loader>()> make_eval_loader,
          const std::atomic<bool>& stop);

  /// Throws what the loader, the strategy or the observer throws; result() and close() still hold.
  void run();
  const TrainResult& result() const { return result_; }
  /// Ends the last step's record at the clock's last change of spans. Call it when all work is
  /// done.
  void close();
  /// How the device spent the run, up to the clock's last change of spans; empty where the host is
  /// the device. Call it after close().
  std::optional<DeviceTime> device_time();

 private:
  /// Takes what the device has finished and hands over the rows that are then complete.
  void collect();
  /// Waits for the device to finish all, then the same.
  void drain();
  void begin_step(std::uint32_t epoch, std::uint64_t step);
  void abandon_step();
  void run_epoch();
  bool train_step(std::uint32_t epoch);
  StepContext place_of(std::uint64_t step) const;
  /// Optimiser steps in so many steps of one epoch, and of the whole run.
  std::uint64_t rounded_up(std::uint64_t steps) const;
  std::uint64_t updates(std::uint64_t steps) const;
  void checkpoint(bool best);
  std::optional<Evaluation> evaluate();
  void end_epoch(std::uint32_t epoch, std::uint64_t steps);

  Loader& loader_;
  Strategy& strategy_;
  TrainObserver& observer_;
  pipeline::SpanClock& spans_;
  const TrainOptions options_;
  std::function<std::unique_ptr<Loader>()> make_eval_loader_;
  const std::atomic<bool>& stop_;

  const std::uint64_t steps_in_epoch_;
  const std::uint64_t all_steps_;  ///< of the whole run
  const Schedule schedule_;

  TrainResult result_;
  Position position_;
  bool first_ = true;                   ///< no batch has come yet
  std::uint64_t since_checkpoint_ = 0;  ///< steps
  pipeline::StepRecord open_;           ///< the step under way
  std::deque<pipeline::StepRecord>
      ended_;                         ///< not yet handed over, for their losses or the last's ticks
  std::uint64_t finished_steps_ = 0;  ///< the device has finished so many
  pipeline::SpanTicks open_since_{};
  pipeline::SpanTicks ended_since_{};       ///< of the last of ended_
  std::optional<DeviceTimeline> timeline_;  ///< until it is known that the host is the device
  bool timed_ = false;                      ///< the device has told of its times
  pipeline::SpanTicks epoch_since_{};
  std::uint64_t images_before_epoch_ = 0;  ///< of this run
  std::optional<double> last_loss_;
};

/// Part of the samples whose label got the largest logit; NaN without samples.
double top1_of(const Evaluation& evaluation);
/// `end` minus `begin`, span by span.
pipeline::SpanTicks difference(const pipeline::SpanTicks& end, const pipeline::SpanTicks& begin);
/// Of all spans of load together.
base::Clock::Ticks load_of(const pipeline::SpanTicks& ticks);

}  // namespace millrace::train
