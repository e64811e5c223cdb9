// The oneTBB flow graph that makes batches on worker threads.
#pragma once

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include "millrace/loader.h"
#include "pipeline/loader/arena_cpu.h"
#include "pipeline/loader/io_pool.h"
#include "pipeline/loader/parallelism.h"
#include "pipeline/loader/sample_range.h"
#include "pipeline/loader/slot.h"
#include "pipeline/loader/stages.h"

namespace millrace::pipeline {

namespace flow = oneapi::tbb::flow;

/// Schedules batches in order, one per free slot, and their sample ranges on all workers. The
/// graph: source (one ordinal per batch) -> limiter (one per slot) -> split (into sample ranges) ->
/// work. With I/O threads, a fetch node lies between the last two.
class FlowGraph {
 public:
  /// Opens the slot of a batch. Returns false if no sample is to be made: the batch is then ready.
  /// Called for one batch at a time.
  using Open = std::function<bool(std::uint64_t ordinal)>;
  /// Processes a range on a worker's thread.
  using Work = std::function<void(const SampleRange&)>;

  /// Makes the batches from LoaderOptions::first_batch up to `end`, each in slot ordinal %
  /// slots.size(), and begins nothing once `stop` is set. `largest` is the largest number of
  /// samples of a batch. All that is given by reference must outlive it.
  FlowGraph(const LoaderOptions& options, std::uint64_t end, std::int64_t largest, Stages& stages,
            std::vector<Slot>& slots, const std::atomic<bool>& stop, Open open, Work work);

  void start();
  /// Ends all work, once the flag `stop` is set. Returns false if a thread is still blocked at
  /// `deadline`; the graph must then never be destroyed.
  bool stop(std::chrono::steady_clock::time_point deadline);
  /// Waits for the last tasks after stop().
  void wait();
  /// Lets one more batch be made; slots are freed in the order of their batches.
  void slot_freed() { limiter_->decrementer().try_put(flow::continue_msg()); }

  /// Returns the CPU time of the workers' threads in seconds.
  double cpu_seconds() const { return cpu_.seconds(); }
  /// Returns the I/O threads; null without any.
  const IoPool* io() const { return io_ ? &*io_ : nullptr; }

 private:
  class Task;
  using Split = flow::multifunction_node<std::uint64_t, std::tuple<SampleRange>>;
  using Fetch = flow::async_node<SampleRange, SampleRange>;

  void build();
  void split(std::uint64_t ordinal, Split::output_ports_type& out);
  void work(const SampleRange& run);

  std::uint64_t issued_;  ///< next ordinal to be made
  const std::uint64_t end_;
  std::vector<Slot>& slots_;
  const std::atomic<bool>& stop_;
  const Open open_;
  const Work work_;
  std::atomic<int> busy_{0};    ///< workers inside work()
  char begun_ = 0, ended_ = 0;  ///< tags for hand-overs from start() to tasks to wait()

  Parallelism parallelism_;
  oneapi::tbb::task_arena arena_;
  ArenaCpu cpu_;
  std::optional<flow::graph> graph_;
  std::optional<flow::input_node<std::uint64_t>> source_;
  std::optional<flow::limiter_node<std::uint64_t>> limiter_;
  std::optional<Split> split_;
  std::optional<Fetch> fetch_;
  std::optional<flow::function_node<SampleRange>> ranges_;
  Fetch::gateway_type* gateway_ = nullptr;  ///< leads from the I/O threads into `ranges_`
  std::optional<IoPool> io_;
};

}  // namespace millrace::pipeline
