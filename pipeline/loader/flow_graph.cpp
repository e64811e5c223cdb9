// Wires the nodes of the flow graph, and ends it.
#include "pipeline/loader/flow_graph.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "pipeline/loader/tsan_handover.h"

namespace millrace::pipeline {

/// Annotates one execution of a node's body, between start() and the end of wait().
class FlowGraph::Task {
 public:
  explicit Task(const FlowGraph& graph) : graph_(graph) { annotate_acquire(&graph_.begun_); }
  ~Task() { annotate_release(&graph_.ended_); }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

 private:
  const FlowGraph& graph_;
};

FlowGraph::FlowGraph(const LoaderOptions& options, std::uint64_t end, std::int64_t largest,
                     Stages& stages, std::vector<Slot>& slots, const std::atomic<bool>& stop,
                     Open open, Work work)
    : issued_(options.first_batch),
      end_(end),
      slots_(slots),
      stop_(stop),
      open_(std::move(open)),
      work_(std::move(work)),
      parallelism_(options.workers),
      arena_(options.workers, 0),
      cpu_(arena_) {
  if (options.io_threads > 0)
    io_.emplace(options.io_threads, slots_.size() * static_cast<std::size_t>(largest), stages,
                slots_, options.timeline.get(), [this](const SampleRange& run) {
                  slots_[run.slot].fetched_runs.fetch_add(1, std::memory_order_acq_rel);
                  gateway_->try_put(run);
                  gateway_->release_wait();
                });
  // A graph belongs to the arena in which it is constructed.
  arena_.execute([this] { build(); });
}

void FlowGraph::build() {
  graph_.emplace();
  source_.emplace(*graph_, [this](oneapi::tbb::flow_control& control) -> std::uint64_t {
    const Task task(*this);
    if (issued_ >= end_ || stop_.load(std::memory_order_relaxed)) {
      control.stop();
      return 0;
    }
    return issued_++;
  });
  limiter_.emplace(*graph_, slots_.size());
  split_.emplace(*graph_, flow::serial,
                 [this](std::uint64_t ordinal, Split::output_ports_type& out) {
                   const Task task(*this);
                   split(ordinal, out);
                 });
  ranges_.emplace(*graph_, flow::unlimited, [this](const SampleRange& run) -> flow::continue_msg {
    const Task task(*this);
    work(run);
    return {};
  });
  flow::make_edge(*source_, *limiter_);
  flow::make_edge(*limiter_, *split_);
  if (!io_) {
    flow::make_edge(flow::output_port<0>(*split_), *ranges_);
    return;
  }
  // Serial, so that ranges are queued in the order in which they are needed.
  fetch_.emplace(*graph_, flow::serial, [this](const SampleRange& run, Fetch::gateway_type& way) {
    const Task task(*this);
    way.reserve_wait();
    if (!io_->add(run)) way.release_wait();
  });
  gateway_ = &fetch_->gateway();
  flow::make_edge(flow::output_port<0>(*split_), *fetch_);
  flow::make_edge(flow::output_port<0>(*fetch_), *ranges_);
}

void FlowGraph::split(std::uint64_t ordinal, Split::output_ports_type& out) {
  const std::size_t index = ordinal % slots_.size();
  Slot& slot = slots_[index];
  // Orders the consumer's last read before the writes.
  static_cast<void>(slot.freed.load(std::memory_order_acquire));
  if (!open_(ordinal)) return;
  const std::int64_t count = slot.id.count;
  const std::int64_t grain = slot.grain;
  // Hands the slot over: once the last range is put, workers finish the batch and the consumer may
  // detach it, so nothing of it is read below.
  slot.missing.store(count, std::memory_order_release);
  std::size_t unit = 0;
  for (std::int64_t first = 0; first < count; first += grain)
    std::get<0>(out).try_put({index, first, std::min(grain, count - first), unit++});
}

void FlowGraph::work(const SampleRange& run) {
  busy_.fetch_add(1);  // before reading stop_, which is written before stop() reads busy_
  if (!stop_.load()) {
    Slot& slot = slots_[run.slot];
    // Acquires the split node's writes.
    static_cast<void>(slot.missing.load(std::memory_order_acquire));
    // Acquires the I/O threads' writes.
    static_cast<void>(slot.fetched_runs.load(std::memory_order_acquire));
    work_(run);
  }
  busy_.fetch_sub(1);
}

void FlowGraph::start() {
  annotate_release(&begun_);
  source_->activate();
}

bool FlowGraph::stop(std::chrono::steady_clock::time_point deadline) {
  const bool read = !io_ || io_->stop(deadline);
  for (std::size_t i = read && io_ ? io_->undelivered() : 0; i > 0; --i) gateway_->release_wait();
  graph_->cancel();
  if (!read) return false;
  while (busy_.load() > 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

void FlowGraph::wait() {
  graph_->wait_for_all();
  annotate_acquire(&ended_);
}

}  // namespace millrace::pipeline
