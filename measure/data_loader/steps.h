// Steps of a watched loader in the trainer's thread: what happens at each next(), in a few µs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "measure/data_loader/breakdown.h"
#include "measure/data_loader/clock.h"
#include "measure/data_loader/lock_watch.h"
#include "measure/data_loader/loop_timeline.h"
#include "measure/data_loader/probes.h"
#include "measure/data_loader/record_ring.h"
#include "measure/data_loader/threads.h"
#include "measure/data_loader/usage.h"

namespace millrace::measure {

/// When the trainer's thread received a batch from the workers' queue, for one iterator, and what
/// CPU and run-queue time that took. It is measured in the steps that are recorded in detail, from
/// which that of the others is estimated.
class Receipts {
 public:
  Receipts(std::shared_ptr<ThreadClock> clock, bool by_another_thread)
      : pinned(by_another_thread), clock_(std::move(clock)) {}

  /// Begins a call of next().
  void begin();
  /// Begins to read a batch's bytes from the pipe.
  void reads();
  void received();
  /// Ends a batch: its tensors have been rebuilt.
  void rebuilt(std::int64_t number);

  /// Goes on in another thread, with its clock.
  void set_clock(std::shared_ptr<ThreadClock> clock) { clock_ = std::move(clock); }

  /// Estimates from the receipts that were measured, for all iterators of a loader.
  struct Estimates {
    PartEstimate since_received;  ///< of a wait
    PartEstimate rebuild;         ///< of the time since the batch was received
    RecurringUsage rebuilding;
    std::int64_t read_cpu = 0;  ///< of reading the latest batch
  };
  /// Fills in when the batch of a wait was received in the call that measured it, and learns from
  /// it.
  void tell(BatchWait& wait, Estimates& estimates) const;
  /// Estimates that of a batch whose receipt was not measured.
  static void estimate(BatchWait& wait, const Estimates& estimates);

  const bool pinned;  ///< another thread receives the batches
  std::int64_t batch = kUnknown;

 private:
  std::shared_ptr<ThreadClock> clock_;
  Reading begin_, end_;     ///< of rebuilding the latest batch
  std::int64_t reads_ = 0;  ///< CPU time before reading its bytes
};

/// Work that is due after a step: none, begin to measure the loop's body, flush.
enum class Due { nothing, measure, flush };

/// Waits and rows of one loader. Of a step in outline, calls of next() and steps of optimizers are
/// told; in detail also its first forward, and the fetch or the receipt of its batch. Rows and
/// breakdown are made when flush() is called.
class LoopSteps {
 public:
  LoopSteps(std::shared_ptr<LoopTimeline> timeline, std::shared_ptr<LoopTable> table,
            std::shared_ptr<DataLoaderBreakdown> breakdown)
      : timeline_(std::move(timeline)),
        table_(std::move(table)),
        breakdown_(std::move(breakdown)) {}

  Depth next_begins(std::int64_t now, Receipts* receipts);
  /// Ends a call of next() that returned a batch: `batch` of the iterator if it tells.
  void next_ended(std::int64_t now, std::int64_t batch, std::int64_t images,
                  const Receipts* receipts);
  /// Ends a call of next() that has failed.
  void waits_no_more() {
    waiting->end();
    timeline_->next_failed();
  }
  /// Returns what is due after a step: flush() after a second, a chunk of steps, or the first step.
  Due due(std::int64_t now) const;
  /// Goes on with the fetches of another iterator without workers, or with none that can be told.
  void set_probe(std::shared_ptr<FetchProbe> probe);
  /// Goes on with another timeline.
  void go_on(std::shared_ptr<LoopTimeline> timeline, std::int64_t now);
  /// Splits the waits since the last call. Returns the lines of steps.csv of the rows that have
  /// ended.
  std::string flush();

  /// Returns whether its loader is inside another one, whose next() has been called.
  bool is_inside_another() const { return timeline_->is_inside_another(*table_); }
  const std::shared_ptr<FetchProbe>& probe() const { return probe_; }
  /// Returns whether the step under way is recorded in detail.
  bool in_detail() const { return in_detail_; }
  std::int64_t waits() const { return static_cast<std::int64_t>(waits_.size()); }
  /// Returns what next() itself used in the waits from one on.
  Usage used_in_next(std::int64_t since);

  const std::shared_ptr<Waiting> waiting = std::make_shared<Waiting>();
  std::int64_t generation = 0;  ///< of the iterator in use
  std::int64_t started = 0;     ///< when the workers' processes were started; 0 without workers
  bool in_order = true;         ///< else a batch's number is only known from its receipt
  bool first = true;            ///< no wait was split yet
  bool measures = false;        ///< a measurement of the loop's body is under way
  std::shared_ptr<RecordRing> records;
  OtherThreads others;  ///< of the trainer's process

 private:
  struct Entry {
    BatchWait wait;
    std::int64_t images = 0;
    std::size_t made = kNotMade;  ///< place in made_, if the batch was made in this thread
    bool estimates = false;       ///< how the batch came about
  };
  static constexpr std::size_t kNotMade = -1;
  struct Made {
    WorkerRecord record;
    Parts parts;
  };

  void estimate();
  bool read_next(const WorkerRecord& record, WorkerRecord& next);

  std::shared_ptr<LoopTimeline> timeline_;
  std::shared_ptr<LoopTable> table_;
  std::shared_ptr<DataLoaderBreakdown> breakdown_;
  std::vector<Entry> waits_;
  std::vector<Made> made_;
  std::size_t estimated_ = 0;  ///< waits for whose batches nothing is left to be estimated
  Parts next_parts_;           ///< of read_next(), unused
  std::shared_ptr<FetchProbe> probe_;
  std::shared_ptr<FetchProbe> known_probe_;  ///< of the latest iterator that had one
  Receipts::Estimates receipt_estimates_;
  UsageSampler sampler_;
  bool in_detail_ = true;
  std::int64_t asked_ = 0;
  std::int64_t flushed_ = 0;
};

}  // namespace millrace::measure
