// Core of a loader: the ring of slots, and its two sides, the workers' and the consumer's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "measure/batch_history.h"
#include "millrace/loader.h"
#include "pipeline/loader/batch_pool.h"
#include "pipeline/loader/batch_sequence.h"
#include "pipeline/loader/flow_graph.h"
#include "pipeline/loader/lookahead.h"
#include "pipeline/loader/ready_event.h"
#include "pipeline/loader/sample_range.h"
#include "pipeline/loader/slot.h"
#include "pipeline/loader/stages.h"
#include "pipeline/loader/wake_delay.h"
#include "pipeline/loader/worker_pool.h"

namespace millrace::pipeline {

/// Implementation of Loader and Batch: owns slots, workers and the graph. Batch n is made in slot n
/// modulo the number of slots, on the graph's workers or, with workers=0, on the consumer's thread.
/// Shared: batches on loan keep it alive.
class LoaderCore : public std::enable_shared_from_this<LoaderCore> {
 public:
  LoaderCore(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
             LoaderOptions options);

  void start();
  bool stop();  ///< returns false if a worker is stuck; the core must then never be destroyed
  std::optional<std::size_t> next();
  void interrupt();
  void free_slot(std::size_t index);
  /// Takes a batch out of its slot, which can be freed then; in a LoaderMode that hands slots out
  /// again, copies it.
  std::shared_ptr<const BatchContents> detach(std::size_t index);
  measure::BatchHistory history(std::size_t index) const;

  const Slot& slot(std::size_t index) const { return slots_[index]; }
  const Stages& stages() const { return stages_; }
  const BatchSequence& batches() const { return batches_; }
  std::uint64_t consumed() const { return consumed_; }
  /// Returns whether next() has nothing more to return: after the last batch, or after an
  /// interrupt.
  bool ended() const {
    return consumed_ >= batches_.end() || stop_.load(std::memory_order_relaxed);
  }
  std::size_t slots() const { return slots_.size(); }
  std::size_t slot_bytes() const { return slot_bytes_; }
  LoaderStats stats() const;

 private:
  void reserve_slots();
  void open_slot(std::uint64_t ordinal);
  bool open_batch(std::uint64_t ordinal);
  void back(Slot& slot);
  void reissue_slot(std::uint64_t ordinal);
  bool make_inline(std::uint64_t ordinal);
  bool wait_for(Slot& slot);
  void record_range(Slot& slot, const SampleRange& run, const Worker& worker) const;
  void trace(const Slot& slot) const;
  void work(const SampleRange& run);
  void finish(Slot& slot, Worker& worker);
  std::int64_t unit(std::int64_t count) const;

  const LoaderOptions options_;
  Stages stages_;
  const BatchSequence batches_;
  std::vector<Slot> slots_;
  const std::uint64_t made_end_;  ///< ordinal behind the last batch that is made (LoaderMode)
  Lookahead lookahead_;           ///< used where slots are opened
  std::atomic<std::uint64_t> consumed_;  ///< next ordinal to be handed out
  std::uint64_t freed_;                  ///< all ordinals before it were returned
  std::shared_ptr<BatchPool> pool_;      ///< memory of slots and of batches that are detached
  std::size_t slot_bytes_ = 0;
  WorkerPool workers_;
  ReadyEvent ready_event_;
  WakeDelay wake_delay_;
  std::atomic<bool> stop_{false};
  std::mutex freeing_;
  std::unique_ptr<FlowGraph> graph_;
};

}  // namespace millrace::pipeline
