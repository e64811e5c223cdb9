// Implementation of Loader and Batch: slots, the order of batches, and the work on a sample range.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "millrace/loader.h"
#include "pipeline/loader/handover.h"
#include "pipeline/loader/rank_slice.h"
#include "pipeline/loader/stages.h"

namespace millrace::pipeline {

/// Owns slots, workers and the graph. Shared: batches on loan keep it alive.
class LoaderCore : public std::enable_shared_from_this<LoaderCore> {
 public:
  LoaderCore(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
             LoaderOptions options);
  ~LoaderCore();

  void start();
  bool stop();  ///< returns false if a worker is stuck; the core must then never be destroyed
  std::optional<std::size_t> next();
  void interrupt();
  void free_slot(std::size_t index);
  BatchHistory history(std::size_t index) const;

  const Slot& slot(std::size_t index) const { return slots_[index]; }
  const Stages& stages() const { return stages_; }
  std::uint64_t batches_per_epoch() const { return batches_per_epoch_; }
  std::uint64_t consumed() const { return consumed_; }
  /// Returns whether next() has nothing more to return: after the last batch, or after an
  /// interrupt.
  bool ended() const { return consumed_ >= end_ || stop_.load(std::memory_order_relaxed); }
  std::uint64_t samples_per_epoch() const;
  std::size_t slots() const { return slots_.size(); }
  std::size_t slot_bytes() const;
  LoaderStats stats() const;

 private:
  struct Graph;

  std::int64_t global_count(std::uint64_t index) const;
  Slice slice_of(std::int64_t global) const;
  BatchId ticket(std::uint64_t ordinal) const;
  void open_slot(std::uint64_t ordinal);
  void hand_out_again(std::uint64_t ordinal);
  bool make_inline(std::uint64_t ordinal);
  bool wait_for(Slot& slot);
  void note_unit(Slot& slot, const SampleRange& run, const Worker& worker) const;
  void trace(const Slot& slot) const;
  void work(const SampleRange& run);
  void finish(Slot& slot, Worker& worker);
  Worker& lease();
  std::int64_t unit(std::int64_t count) const;

  const LoaderOptions options_;
  Stages stages_;
  std::uint64_t batches_per_epoch_;
  std::int64_t max_;        ///< samples of the rank's largest slice, at least 1
  std::uint64_t end_;       ///< ordinal behind the last batch
  std::uint64_t made_end_;  ///< ordinal behind the last batch that is made (LoaderMode)
  std::uint64_t issued_;    ///< next ordinal to be made (the graph's source)
  std::atomic<std::uint64_t> consumed_;  ///< next ordinal to be handed out
  std::uint64_t freed_;                  ///< all ordinals before it were returned
  std::vector<Slot> slots_;
  std::vector<Worker> workers_;
  ReadyEvent ready_event_;
  /// Last reading of the caller's SchedulerWait: when, and its value below.
  base::Clock::Ticks core_read_at_ = 0;
  std::int64_t core_wait_ns_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> busy_{0};  ///< workers inside work()
  std::mutex freeing_;
  char begun_ = 0, ended_ = 0;  ///< tags for hand-overs from start() to tasks to stop()
  std::unique_ptr<Graph> graph_;
};

}  // namespace millrace::pipeline
