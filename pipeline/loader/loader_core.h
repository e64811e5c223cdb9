// Core of a loader: slots and their order, and the oneTBB flow graph that fills them.
#pragma once

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "millrace/loader.h"
#include "pipeline/loader/arena_cpu.h"
#include "pipeline/loader/batch_pool.h"
#include "pipeline/loader/io_pool.h"
#include "pipeline/loader/parallelism.h"
#include "pipeline/loader/ready_event.h"
#include "pipeline/loader/slice.h"
#include "pipeline/loader/slot.h"
#include "pipeline/loader/stages.h"
#include "pipeline/loader/tsan_handover.h"

namespace millrace::pipeline {

// Implementation of Loader and Batch: slots, the order of batches, and the work on a sample range.

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
  /// Takes a batch out of its slot, which can be freed then; in a LoaderMode that hands slots out
  /// again, copies it.
  std::shared_ptr<const BatchContents> detach(std::size_t index);
  measure::BatchHistory history(std::size_t index) const;

  const Slot& slot(std::size_t index) const { return slots_[index]; }
  const Stages& stages() const { return stages_; }
  std::uint64_t batches_per_epoch() const { return batches_per_epoch_; }
  std::uint64_t consumed() const { return consumed_; }
  /// Returns whether next() has nothing more to return: after the last batch, or after an
  /// interrupt.
  bool ended() const { return consumed_ >= end_ || stop_.load(std::memory_order_relaxed); }
  std::uint64_t samples_per_epoch() const;
  std::size_t slots() const { return slots_.size(); }
  std::size_t slot_bytes() const { return slot_bytes_; }
  LoaderStats stats() const;

 private:
  struct Graph;

  std::int64_t global_count(std::uint64_t index) const;
  Slice slice_of(std::int64_t global) const;
  BatchId batch_id(std::uint64_t ordinal) const;
  void open_slot(std::uint64_t ordinal);
  void back(Slot& slot);
  void announce(std::uint64_t ordinal);
  void reissue_slot(std::uint64_t ordinal);
  bool make_inline(std::uint64_t ordinal);
  bool wait_for(Slot& slot);
  void record_range(Slot& slot, const SampleRange& run, const Worker& worker) const;
  void trace(const Slot& slot) const;
  void work(const SampleRange& run);
  void finish(Slot& slot, Worker& worker);
  Worker& acquire_worker();
  std::int64_t unit(std::int64_t count) const;

  const LoaderOptions options_;
  Stages stages_;
  std::uint64_t batches_per_epoch_;
  std::int64_t max_;         ///< samples of the rank's largest slice, at least 1
  std::uint64_t end_;        ///< ordinal behind the last batch
  std::uint64_t made_end_;   ///< ordinal behind the last batch that is made (LoaderMode)
  std::uint64_t issued_;     ///< next ordinal to be made (the graph's source)
  std::uint64_t announced_;  ///< next ordinal whose samples the reader is told (split node)
  std::atomic<std::uint64_t> consumed_;  ///< next ordinal to be handed out
  std::uint64_t freed_;                  ///< all ordinals before it were returned
  std::vector<Slot> slots_;
  std::shared_ptr<BatchPool> pool_;  ///< memory of slots and of batches that are detached
  std::size_t slot_bytes_ = 0;
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

// The loader's workers as a TBB flow graph.

namespace flow = oneapi::tbb::flow;

/// The graph: source (one ordinal per batch) -> limiter (one per slot) -> split (into sample
/// ranges) -> work. With I/O threads, a fetch node lies between the last two.
struct LoaderCore::Graph {
  explicit Graph(LoaderCore& core)
      : parallelism(core.options_.workers), arena(core.options_.workers, 0), cpu(arena) {
    if (core.options_.io_threads > 0)
      io.emplace(core.options_.io_threads, core.slots_.size() * static_cast<std::size_t>(core.max_),
                 core.stages_, core.slots_, core.options_.timeline.get(),
                 [this, &core](const SampleRange& run) {
                   core.slots_[run.slot].fetched_runs.fetch_add(1, std::memory_order_acq_rel);
                   gateway->try_put(run);
                   gateway->release_wait();
                 });
    // A graph belongs to the arena in which it is constructed.
    arena.execute([&] { build(core); });
  }

  void build(LoaderCore& core) {
    graph.emplace();
    source.emplace(*graph, [&core](oneapi::tbb::flow_control& control) -> std::uint64_t {
      const Task task(core);
      if (core.issued_ >= core.made_end_ || core.stop_.load(std::memory_order_relaxed)) {
        control.stop();
        return 0;
      }
      return core.issued_++;
    });
    limiter.emplace(*graph, core.slots_.size());
    split.emplace(
        *graph, flow::serial, [&core](std::uint64_t ordinal, Split::output_ports_type& out) {
          const Task task(core);
          const std::size_t index = ordinal % core.slots_.size();
          Slot& slot = core.slots_[index];
          // Orders the consumer's last read before the writes.
          static_cast<void>(slot.freed.load(std::memory_order_acquire));
          core.open_slot(ordinal);
          core.announce(ordinal);
          const std::int64_t count = slot.id.count;
          if (count == 0) {   // no worker will touch it
            core.back(slot);  // its consumer may look where its samples would be
            slot.valid = 0;
            slot.made = slot.opened;
            core.ready_event_.set(slot.ready);
            return;
          }
          const std::int64_t grain = slot.grain;
          // Hands the slot over: once the last range is put, workers finish the batch and the
          // consumer may detach it, so nothing of it is read below.
          slot.missing.store(count, std::memory_order_release);
          std::size_t unit = 0;
          for (std::int64_t first = 0; first < count; first += grain)
            std::get<0>(out).try_put({index, first, std::min(grain, count - first), unit++});
        });
    work.emplace(*graph, flow::unlimited, [&core](const SampleRange& run) -> flow::continue_msg {
      const Task task(core);
      core.work(run);
      return {};
    });
    flow::make_edge(*source, *limiter);
    flow::make_edge(*limiter, *split);
    if (!io) {
      flow::make_edge(flow::output_port<0>(*split), *work);
      return;
    }
    // Serial, so that ranges are queued in the order in which they are needed.
    fetch.emplace(*graph, flow::serial,
                  [this, &core](const SampleRange& run, Fetch::gateway_type& way) {
                    const Task task(core);
                    way.reserve_wait();
                    if (!io->add(run)) way.release_wait();
                  });
    gateway = &fetch->gateway();
    flow::make_edge(flow::output_port<0>(*split), *fetch);
    flow::make_edge(flow::output_port<0>(*fetch), *work);
  }

  /// Ends the I/O threads. Returns false if one is blocked in a read.
  bool stop_reading(std::chrono::steady_clock::time_point deadline) {
    if (!io) return true;
    if (!io->stop(deadline)) return false;
    for (std::size_t i = io->undelivered(); i > 0; --i) gateway->release_wait();
    return true;
  }

  /// Annotates one execution of a node's body, between start() and the end of stop().
  struct Task {
    explicit Task(const LoaderCore& of) : core(of) { annotate_acquire(&core.begun_); }
    ~Task() { annotate_release(&core.ended_); }
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    const LoaderCore& core;
  };

  using Split = flow::multifunction_node<std::uint64_t, std::tuple<SampleRange>>;
  using Fetch = flow::async_node<SampleRange, SampleRange>;

  Parallelism parallelism;
  oneapi::tbb::task_arena arena;
  ArenaCpu cpu;
  std::optional<flow::graph> graph;
  std::optional<flow::input_node<std::uint64_t>> source;
  std::optional<flow::limiter_node<std::uint64_t>> limiter;
  std::optional<Split> split;
  std::optional<Fetch> fetch;
  std::optional<flow::function_node<SampleRange>> work;
  Fetch::gateway_type* gateway = nullptr;  ///< leads from the I/O threads into `work`
  std::optional<IoPool> io;
};

}  // namespace millrace::pipeline
