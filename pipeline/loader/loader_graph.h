// The loader's workers as a TBB flow graph. Included by loader_core.cpp only.
#pragma once

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <tuple>

#include "base/parallelism.h"
#include "pipeline/loader/arena_cpu.h"
#include "pipeline/loader/io_pool.h"
#include "pipeline/loader/loader_core.h"

namespace millrace::pipeline {

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
          const std::int64_t count = slot.ticket.count;
          if (count == 0) {  // no worker will touch it
            slot.valid = 0;
            slot.made = slot.opened;
            core.ready_event_.ring(slot.ready);
            return;
          }
          const std::int64_t grain = slot.grain;
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
    explicit Task(const LoaderCore& of) : core(of) { taken_over(&core.begun_); }
    ~Task() { hand_over(&core.ended_); }
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    const LoaderCore& core;
  };

  using Split = flow::multifunction_node<std::uint64_t, std::tuple<SampleRange>>;
  using Fetch = flow::async_node<SampleRange, SampleRange>;

  base::Parallelism parallelism;
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
