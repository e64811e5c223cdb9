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

/// When the trainer's thread received each batch from the workers' queue, for one iterator. CPU and
/// run-queue time are measured on some batches, from which those of the others are estimated.
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

  /// Fills in what a wait for a batch knows of its receipt.
  void tell(BatchWait& wait) const;

  const bool pinned;  ///< another thread receives the batches
  std::int64_t batch = kUnknown;

 private:
  std::shared_ptr<ThreadClock> clock_;
  Reading begin_;
  std::int64_t received_ = 0, rebuilt_ = 0;
  std::int64_t reads_ = 0;     ///< CPU time before reading a batch that is measured
  std::int64_t read_cpu_ = 0;  ///< of reading the latest measured one
  Usage usage_;                ///< of rebuilding the latest batch
  bool measures_ = false;
  UsageSampler sampler_;
  RecurringUsage rebuilding_;
};

/// Work that is due after a step: none, begin to measure the loop's body, flush.
enum class Due { nothing, measure, flush };

/// Waits and rows of one loader. Rows and breakdown are made when flush() is called.
class LoopSteps {
 public:
  LoopSteps(std::shared_ptr<LoopTimeline> timeline, std::shared_ptr<LoopTable> table,
            std::shared_ptr<DataLoaderBreakdown> breakdown)
      : timeline_(std::move(timeline)),
        table_(std::move(table)),
        breakdown_(std::move(breakdown)) {}

  void next_begins(std::int64_t now, Receipts* receipts);
  /// Ends a call of next() that returned a batch: `batch` of the iterator if it tells.
  void next_ended(std::int64_t now, std::int64_t batch, std::int64_t images,
                  const Receipts* receipts);
  /// Returns what is due after a step: flush() after a second, a chunk of steps, or the first step.
  Due due(std::int64_t now) const;
  /// Goes on with another timeline.
  void go_on(std::shared_ptr<LoopTimeline> timeline, std::int64_t now);
  /// Splits the waits since the last call. Returns the lines of steps.csv of the rows that have
  /// ended.
  std::string flush();

  std::int64_t waits() const { return static_cast<std::int64_t>(waits_.size()); }
  /// Returns what next() itself used in the waits from one on.
  Usage used_in_next(std::int64_t since) const;

  const std::shared_ptr<Waiting> waiting = std::make_shared<Waiting>();
  std::int64_t generation = 0;  ///< of the iterator in use
  std::int64_t started = 0;     ///< when the workers' processes were started; 0 without workers
  bool in_order = true;
  bool first = true;                  ///< no wait was split yet
  bool measures = false;              ///< a measurement of the loop's body is under way
  std::shared_ptr<FetchProbe> probe;  ///< without workers
  std::shared_ptr<RecordRing> records;
  OtherThreads others;  ///< of the trainer's process

 private:
  struct Entry {
    BatchWait wait;
    bool inlined = false;  ///< made in this thread: `record` is its record
    WorkerRecord record;
    Parts parts;
  };

  bool read_next(const WorkerRecord& record, WorkerRecord& next);

  std::shared_ptr<LoopTimeline> timeline_;
  std::shared_ptr<LoopTable> table_;
  std::shared_ptr<DataLoaderBreakdown> breakdown_;
  std::vector<Entry> waits_;
  Parts next_parts_;  ///< of read_next(), unused
  std::int64_t asked_ = 0;
  std::int64_t flushed_ = 0;
};

}  // namespace millrace::measure
