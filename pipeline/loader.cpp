#include "pipeline/loader.h"

#include <fmt/format.h>
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "pipeline/arena_cpu.h"
#include "pipeline/core_watch.h"
#include "pipeline/error.h"
#include "pipeline/handover.h"
#include "pipeline/io_pool.h"
#include "pipeline/noise.h"
#include "pipeline/parallelism.h"
#include "pipeline/rank_slice.h"
#include "pipeline/stages.h"

namespace millrace {
namespace {

namespace flow = oneapi::tbb::flow;

/// Work units are cut so that one takes about this long: the graph's cost, some µs a unit, is then
/// small, and a batch still spreads over the workers.
constexpr std::int64_t kUnitNs = 200'000;
StageTotals operator+(const StageTotals& a, const StageTotals& b) {
  return {a.calls + b.calls, a.wall_s + b.wall_s, a.cpu_s + b.cpu_s, a.bytes + b.bytes};
}

/// Of two loaders one after the other on the same reader, whose own counts `a` has in full.
LoaderStats operator+(LoaderStats a, const LoaderStats& b) {
  a.read = a.read + b.read;
  a.decode = a.decode + b.decode;
  a.augment = a.augment + b.augment;
  a.machinery_cpu_s += b.machinery_cpu_s;
  a.busy_s += b.busy_s;
  a.core_wait_s += b.core_wait_s;
  a.failed += b.failed;
  return a;
}

/// How long the destructor waits for workers before it leaves a blocked one behind.
constexpr auto kPatience = std::chrono::seconds(2);
/// A caller that gets a core when it is woken has its batch within this time.
constexpr double kPromptWake = 50e-6;
/// Asking how long the caller has waited for cores takes about 1 µs: an answer holds this long.
constexpr double kFresh = 1e-3;

}  // namespace

/// The loader behind its handle: batches on loan keep it alive.
class LoaderCore : public std::enable_shared_from_this<LoaderCore> {
 public:
  LoaderCore(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
             LoaderOptions options);

  void start();
  bool stop();  ///< false: a worker is stuck and the core must never be destroyed
  std::optional<std::size_t> next();
  void interrupt();
  void free_slot(std::size_t index);
  BatchHistory history(std::size_t index) const;

  const Slot& slot(std::size_t index) const { return slots_[index]; }
  const Stages& stages() const { return stages_; }
  std::uint64_t batches_per_epoch() const { return batches_per_epoch_; }
  std::uint64_t consumed() const { return consumed_; }
  /// There is no next batch, or next() was told to end.
  bool ended() const { return consumed_ >= end_ || stop_.load(std::memory_order_relaxed); }
  std::uint64_t samples_per_epoch() const;
  std::size_t slot_bytes() const;
  LoaderStats stats() const;

 private:
  struct Graph;

  std::int64_t global_count(std::uint64_t index) const;
  Slice slice_of(std::int64_t global) const;
  Ticket ticket(std::uint64_t ordinal) const;
  void open_slot(std::uint64_t ordinal);
  void hand_out_again(std::uint64_t ordinal);
  bool make_inline(std::uint64_t ordinal);
  bool wait_for(Slot& slot);
  void note_unit(Slot& slot, const Run& run, const Worker& worker) const;
  void trace(const Slot& slot) const;
  void work(const Run& run);
  void finish(Slot& slot, Worker& worker);
  Worker& lease();
  std::int64_t unit(std::int64_t count) const;

  const LoaderOptions options_;
  Stages stages_;
  std::uint64_t batches_per_epoch_;
  std::int64_t most_;                    ///< samples of the rank's largest slice, at least 1
  std::uint64_t end_;                    ///< ordinal behind the last batch
  std::uint64_t made_end_;               ///< and behind the last one that is made (LoaderMode)
  std::uint64_t issued_;                 ///< next ordinal to be made (the graph's source)
  std::atomic<std::uint64_t> consumed_;  ///< next ordinal to be handed out
  std::uint64_t freed_;                  ///< all ordinals before it were given back
  std::vector<Slot> slots_;
  std::vector<Worker> workers_;
  Doorbell doorbell_;
  Clock::Ticks core_read_at_ = 0;  ///< when the caller's CoreWatch was asked, and what it said
  std::int64_t core_wait_ns_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> busy_{0};  ///< workers inside work()
  std::mutex freeing_;
  char begun_ = 0, ended_ = 0;  ///< tags of hand-overs from start() to tasks to stop()
  std::unique_ptr<Graph> graph_;
};

/// source (a ticket a batch) -> limiter (as many as there are slots) -> split (into runs) -> work,
/// with I/O threads between the last two where there are any.
struct LoaderCore::Graph {
  explicit Graph(LoaderCore& core)
      : parallelism(core.options_.workers), arena(core.options_.workers, 0), cpu(arena) {
    if (core.options_.io_threads > 0)
      io.emplace(core.options_.io_threads,
                 core.slots_.size() * static_cast<std::size_t>(core.most_), core.stages_,
                 core.slots_, core.options_.timeline.get(), [this, &core](const Run& run) {
                   core.slots_[run.slot].fetched_runs.fetch_add(1, std::memory_order_acq_rel);
                   gateway->try_put(run);
                   gateway->release_wait();
                 });
    // A graph belongs to the arena that it is made in.
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
          static_cast<void>(
              slot.freed.load(std::memory_order_acquire));  // the consumer's last read
          core.open_slot(ordinal);
          const std::int64_t count = slot.ticket.count;
          if (count == 0) {  // no worker will see it
            slot.valid = 0;
            slot.made = slot.opened;
            core.doorbell_.ring(slot.ready);
            return;
          }
          const std::int64_t grain = slot.grain;
          std::size_t unit = 0;
          for (std::int64_t first = 0; first < count; first += grain)
            std::get<0>(out).try_put({index, first, std::min(grain, count - first), unit++});
        });
    work.emplace(*graph, flow::unlimited, [&core](const Run& run) -> flow::continue_msg {
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
    // Serial, so that runs are queued in the order in which they are needed.
    fetch.emplace(*graph, flow::serial, [this, &core](const Run& run, Fetch::gateway_type& way) {
      const Task task(core);
      way.reserve_wait();
      if (!io->add(run)) way.release_wait();
    });
    gateway = &fetch->gateway();
    flow::make_edge(flow::output_port<0>(*split), *fetch);
    flow::make_edge(flow::output_port<0>(*fetch), *work);
  }

  /// False: a thread is blocked in a read.
  bool stop_reading(std::chrono::steady_clock::time_point deadline) {
    if (!io) return true;
    if (!io->stop(deadline)) return false;
    for (std::size_t i = io->undelivered(); i > 0; --i) gateway->release_wait();
    return true;
  }

  /// One execution of a node's body, between start() and the end of stop().
  struct Task {
    explicit Task(const LoaderCore& of) : core(of) { taken_over(&core.begun_); }
    ~Task() { hand_over(&core.ended_); }
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    const LoaderCore& core;
  };

  using Split = flow::multifunction_node<std::uint64_t, std::tuple<Run>>;
  using Fetch = flow::async_node<Run, Run>;

  Parallelism parallelism;
  oneapi::tbb::task_arena arena;
  ArenaCpu cpu;
  std::optional<flow::graph> graph;
  std::optional<flow::input_node<std::uint64_t>> source;
  std::optional<flow::limiter_node<std::uint64_t>> limiter;
  std::optional<Split> split;
  std::optional<Fetch> fetch;
  std::optional<flow::function_node<Run>> work;
  Fetch::gateway_type* gateway = nullptr;  ///< into `work`, from the I/O threads
  std::optional<IoPool> io;
};

LoaderCore::LoaderCore(std::shared_ptr<const Reader> reader,
                       std::shared_ptr<const Transform> transform, LoaderOptions options)
    : options_(std::move(options)),
      stages_(std::move(reader), std::move(transform), options_),
      slots_(static_cast<std::size_t>(options_.workers > 0 ? options_.prefetch + 1 : 2)),
      workers_(static_cast<std::size_t>(std::max(1, options_.workers))) {
  check_batch(options_, stages_.reader().info());
  const std::uint64_t count = stages_.reader().info().count;
  const auto batch = static_cast<std::uint64_t>(options_.batch);
  batches_per_epoch_ = options_.drop_last ? count / batch : (count + batch - 1) / batch;
  most_ = 1;
  for (const std::uint64_t index : {std::uint64_t{0}, batches_per_epoch_ - 1})
    most_ = std::max(most_, slice_of(global_count(index)).count);
  end_ = batches_per_epoch_ * options_.epochs;
  if (options_.first_batch >= end_)
    throw UsageError(fmt::format("batch {} lies behind the last one: there are {} in {} epochs",
                                 options_.first_batch, end_, options_.epochs),
                     fmt::format("bench.first_batch counts them from 0 to {}", end_ - 1));
  made_end_ = end_;
  if (options_.mode == LoaderMode::cached)
    made_end_ = std::min(end_, options_.first_batch + slots_.size());
  if (options_.mode == LoaderMode::synthetic) made_end_ = options_.first_batch;
  issued_ = freed_ = options_.first_batch;
  consumed_ = options_.first_batch;
  const auto most = static_cast<std::size_t>(most_);
  for (Slot& slot : slots_) {
    slot.memory.reserve(most * stages_.transform().output().bytes());
    slot.labels.resize(most);
    slot.units.reserve(most);
    slot.probabilities.resize(most * static_cast<std::size_t>(stages_.transform().soft_classes()));
    if (options_.workers > 0 && options_.io_threads > 0) slot.fetched.resize(most);
    // Room for all but the rare large sample, so that few buffers have to grow.
    const DatasetInfo& info = stages_.reader().info();
    for (Fetched& fetched : slot.fetched)
      if (!info.in_place) fetched.bytes.reserve(2 * info.bytes / info.count);
  }
  for (Worker& worker : workers_) worker.transform = stages_.transform().make_scratch();
  if (options_.mode == LoaderMode::synthetic)
    for (std::size_t i = 0; i < slots_.size(); ++i)
      fill_with_noise(slots_[i], i, most, stages_.transform(), stages_.reader().info());
}

void LoaderCore::start() {
  if (options_.workers == 0 || options_.mode == LoaderMode::synthetic) return;
  graph_ = std::make_unique<Graph>(*this);
  hand_over(&begun_);
  graph_->source->activate();
}

bool LoaderCore::stop() {
  interrupt();
  if (graph_ == nullptr) return true;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const bool read = graph_->stop_reading(deadline);
  graph_->graph->cancel();
  if (!read) return false;
  while (busy_.load() > 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  {
    // A batch given back from now on must not reach for the graph.
    const std::lock_guard lock(freeing_);
    graph_->graph->wait_for_all();
    taken_over(&ended_);
    graph_.reset();
  }
  return true;
}

void LoaderCore::interrupt() {
  stop_.store(true);
  doorbell_.ring_all(slots_);
}

std::int64_t LoaderCore::global_count(std::uint64_t index) const {
  const auto batch = static_cast<std::uint64_t>(options_.batch);
  return static_cast<std::int64_t>(std::min(batch, stages_.reader().info().count - index * batch));
}

Slice LoaderCore::slice_of(std::int64_t global) const {
  const bool pairs = stages_.transform().soft_classes() > 0;  // mixup and its like
  return rank_slice(global, options_.rank, options_.world, pairs);
}

Ticket LoaderCore::ticket(std::uint64_t ordinal) const {
  Ticket ticket;
  ticket.ordinal = ordinal;
  ticket.epoch = static_cast<std::uint32_t>(ordinal / batches_per_epoch_);
  ticket.index = ordinal % batches_per_epoch_;
  ticket.global = global_count(ticket.index);
  const Slice slice = slice_of(ticket.global);
  ticket.first = ticket.index * static_cast<std::uint64_t>(options_.batch) +
                 static_cast<std::uint64_t>(slice.first);
  ticket.count = slice.count;
  return ticket;
}

void LoaderCore::open_slot(std::uint64_t ordinal) {
  Slot& slot = slots_[ordinal % slots_.size()];
  slot.ticket = ticket(ordinal);
  const std::int64_t count = slot.ticket.count;
  const bool whole = options_.workers == 0;
  slot.grain = whole ? std::max<std::int64_t>(1, count) : unit(count);
  slot.units.assign(static_cast<std::size_t>(whole ? 1 : (count + slot.grain - 1) / slot.grain),
                    {});
  slot.failed.clear();
  slot.failures.clear();
  slot.error = nullptr;
  slot.error_place = -1;
  if (options_.record) slot.opened = Clock::now();
  slot.ready.store(0, std::memory_order_relaxed);
  slot.freed.store(0, std::memory_order_relaxed);
  slot.missing.store(slot.ticket.count, std::memory_order_release);
}

Worker& LoaderCore::lease() {
  // As many as there are threads, so one is always free.
  for (;;) {
    for (Worker& worker : workers_) {
      if (!worker.leased.load(std::memory_order_relaxed) &&
          !worker.leased.exchange(true, std::memory_order_acquire))
        return worker;
    }
  }
}

std::int64_t LoaderCore::unit(std::int64_t count) const {
  if (options_.grain > 0) return options_.grain;
  const std::int64_t workers = options_.workers;
  // Too few batches are open to keep every worker busy with whole ones.
  const std::int64_t least_runs = (workers + options_.prefetch - 1) / options_.prefetch;
  const std::int64_t grain = (count + least_runs - 1) / least_runs;
  const std::int64_t cost = stages_.cost_ns();
  if (cost == 0) return std::max<std::int64_t>(1, (count + workers - 1) / workers);
  return std::max<std::int64_t>(1, std::min(grain, kUnitNs / cost));
}

void LoaderCore::finish(Slot& slot, Worker& worker) {
  try {
    stages_.finish(slot, worker);
  } catch (...) {
    Stages::note_error(slot, 0, std::current_exception());
  }
}

void LoaderCore::work(const Run& run) {
  busy_.fetch_add(1);  // before the look at stop_: stop() looks the other way round
  if (!stop_.load()) {
    Slot& slot = slots_[run.slot];
    static_cast<void>(slot.missing.load(std::memory_order_acquire));  // see what open_slot() wrote
    static_cast<void>(slot.fetched_runs.load(std::memory_order_acquire));  // and the I/O threads
    Worker& worker = lease();
    try {
      stages_.work(run, slot, worker, stop_);
    } catch (...) {  // whatever it is, next() throws it: the graph would only lose it
      Stages::note_error(slot, run.first, std::current_exception());
    }
    note_unit(slot, run, worker);
    if (slot.missing.fetch_sub(run.count, std::memory_order_acq_rel) == run.count) {
      finish(slot, worker);
      if (options_.record) slot.made = Clock::now();
      doorbell_.ring(slot.ready);
    }
    worker.leased.store(false, std::memory_order_release);
  }
  busy_.fetch_sub(1);
}

std::optional<std::size_t> LoaderCore::next() {
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) interrupt();
  if (consumed_ >= end_ || stop_.load(std::memory_order_relaxed)) return std::nullopt;
  const Clock::Ticks asked = options_.record ? Clock::now() : 0;
  {
    const std::lock_guard lock(freeing_);
    if (freed_ + slots_.size() <= consumed_)  // the slot that comes next is still out
      throw RunError(
          fmt::format("next(): the caller holds the batch of {} before, and there are {} "
                      "slots",
                      slots_.size(), slots_.size()),
          options_.workers > 0 ? "give older batches back first, or raise loader.prefetch"
                               : "give older batches back first");
  }
  const std::size_t index = consumed_ % slots_.size();
  Slot& slot = slots_[index];
  slot.core_wait = 0;
  if (consumed_ >= made_end_) {
    hand_out_again(consumed_);
  } else if (!(options_.workers == 0 ? make_inline(consumed_) : wait_for(slot))) {
    return std::nullopt;
  }
  try {
    stages_.report(slot);
    if (slot.error != nullptr) std::rethrow_exception(slot.error);
  } catch (...) {
    interrupt();
    throw;
  }
  ++consumed_;
  if (options_.record) {
    slot.asked = asked;
    slot.got = Clock::now();
    if (options_.timeline != nullptr) trace(slot);
  }
  return index;
}

/// A batch whose samples are in its slot from an earlier one.
void LoaderCore::hand_out_again(std::uint64_t ordinal) {
  Slot& slot = slots_[ordinal % slots_.size()];
  // Of the samples that were made, the first are as good as others.
  slot.kept = std::max(slot.kept, slot.valid);
  open_slot(ordinal);
  slot.units.clear();
  slot.valid = std::min(slot.ticket.count, slot.kept);
  slot.made = slot.opened;
}

bool LoaderCore::make_inline(std::uint64_t ordinal) {
  const std::size_t index = ordinal % slots_.size();
  Slot& slot = slots_[index];
  open_slot(ordinal);
  const Run run{index, 0, slot.ticket.count, 0};
  stages_.work(run, slot, workers_[0], stop_);
  note_unit(slot, run, workers_[0]);
  if (stop_.load(std::memory_order_relaxed)) return false;
  finish(slot, workers_[0]);
  if (options_.record) slot.made = Clock::now();
  return true;
}

bool LoaderCore::wait_for(Slot& slot) {
  const bool sleeps = options_.record && slot.ready.load(std::memory_order_relaxed) != 1;
  if (const Clock::Ticks now = Clock::now(); sleeps && now - core_read_at_ > Clock::ticks(kFresh)) {
    core_read_at_ = now;
    core_wait_ns_ = CoreWatch::mine().core_wait_ns();
  }
  doorbell_.wait(slot.ready, stop_, options_.stop);
  if (slot.ready.load(std::memory_order_acquire) != 1) return false;
  slot.ready.store(0, std::memory_order_relaxed);
  if (const Clock::Ticks now = Clock::now();
      sleeps && now - slot.made > Clock::ticks(kPromptWake)) {
    const std::int64_t before = std::exchange(core_wait_ns_, CoreWatch::mine().core_wait_ns());
    slot.core_wait = Clock::ticks(static_cast<double>(core_wait_ns_ - before) * 1e-9);
    core_read_at_ = now;
  }
  return true;
}

void LoaderCore::note_unit(Slot& slot, const Run& run, const Worker& worker) const {
  if (!options_.record) return;
  UnitHistory& unit = slot.units[run.unit];
  unit.first = static_cast<std::uint32_t>(run.first);
  unit.count = static_cast<std::uint32_t>(run.count);
  unit.worker = static_cast<std::uint32_t>(&worker - workers_.data());
  if (options_.timeline != nullptr)
    options_.timeline->worker(unit.worker).add({slot.ticket.ordinal, unit});
}

void LoaderCore::trace(const Slot& slot) const {
  const Ticket& ticket = slot.ticket;
  options_.timeline->batches().add(
      {ticket.ordinal, ticket.epoch, ticket.index, slot.asked, slot.opened, slot.made, slot.got});
}

BatchHistory LoaderCore::history(std::size_t index) const {
  const Slot& slot = slots_[index];
  const Ticket& ticket = slot.ticket;
  if (!options_.record) return {};
  return {.ordinal = ticket.ordinal,
          .epoch = ticket.epoch,
          .index = ticket.index,
          .first = ticket.ordinal == options_.first_batch,
          .made_inline = options_.workers == 0,
          .asked = slot.asked,
          .opened = slot.opened,
          .ready = slot.made,
          .got = slot.got,
          .core_wait = slot.core_wait,
          .units = slot.units};
}

void LoaderCore::free_slot(std::size_t index) {
  slots_[index].freed.store(1, std::memory_order_release);
  // The limiter counts slots, and the next ordinal needs a certain one: it hears of slots in order.
  const std::lock_guard lock(freeing_);
  while (freed_ < consumed_ && slots_[freed_ % slots_.size()].freed.load() == 1) {
    ++freed_;
    if (graph_ != nullptr && freed_ <= made_end_ && !stop_.load(std::memory_order_relaxed))
      graph_->limiter->decrementer().try_put(flow::continue_msg());
  }
}

std::uint64_t LoaderCore::samples_per_epoch() const {
  const std::uint64_t count = stages_.reader().info().count;
  return options_.drop_last ? batches_per_epoch_ * static_cast<std::uint64_t>(options_.batch)
                            : count;
}

std::size_t LoaderCore::slot_bytes() const {
  std::size_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.memory.capacity() + slot.labels.size() * 8;
  return bytes;
}

LoaderStats LoaderCore::stats() const {
  LoaderStats stats;
  StageTotals* totals[kStageCount] = {&stats.read, &stats.decode, &stats.augment};
  const double rate = Clock::seconds_per_tick();
  double stages_cpu = 0;
  for (const Worker& worker : workers_) {
    for (std::size_t i = 0; i < kStageCount; ++i) {
      const StageRecord& record = worker.records[i];
      const double wall = static_cast<double>(record.ticks.get()) * rate;
      // CPU time a call, from the runs that took it; reading that clock counts for nothing.
      const auto calls = static_cast<double>(record.calls.get());
      const auto sampled = static_cast<double>(record.sampled_calls.get());
      const double cpu =
          sampled > 0 ? static_cast<double>(record.sampled_cpu_ns.get()) * 1e-9 * calls / sampled
                      : wall;
      totals[i]->calls += record.calls.get();
      totals[i]->bytes += record.bytes.get();
      totals[i]->wall_s += wall;
      totals[i]->cpu_s += std::min(wall, cpu);
      stages_cpu += std::min(wall, cpu);
    }
  }
  if (graph_ != nullptr) stats.machinery_cpu_s = std::max(0.0, graph_->cpu.seconds() - stages_cpu);
  if (graph_ != nullptr && graph_->io) {
    const StageTotals read = graph_->io->totals();
    stats.read.calls += read.calls;
    stats.read.bytes += read.bytes;
    stats.read.wall_s += read.wall_s;
    stats.read.cpu_s += read.cpu_s;
    stats.io_threads = options_.io_threads;
  }
  for (const Worker& worker : workers_) {
    stats.busy_s += Clock::seconds(worker.busy_ticks.get());
    stats.core_wait_s += Clock::seconds(worker.core_wait_ticks.get());
  }
  stats.cold = stages_.reader().cold();
  stats.failed = stages_.failed();
  return stats;
}

void check_batch(const LoaderOptions& options, const DatasetInfo& dataset) {
  if (options.rank < 0 || options.rank >= options.world)
    throw UsageError(fmt::format("rank {} of {} ranks: they count from 0 to {}", options.rank,
                                 options.world, options.world - 1));
  if (static_cast<std::uint64_t>(options.batch) <= dataset.count) return;
  throw UsageError(fmt::format("a batch of {} is larger than the data set: {} has {} {} samples",
                               options.batch, dataset.path, dataset.count, dataset.split),
                   fmt::format("set loader.batch to at most {}", dataset.count));
}

Batch::Batch(std::shared_ptr<LoaderCore> core, std::size_t slot)
    : core_(std::move(core)), slot_(slot) {}
Batch::Batch(Batch&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)), slot_(other.slot_) {}
Batch& Batch::operator=(Batch&& other) noexcept {
  if (this == &other) return *this;
  release();
  core_ = std::exchange(other.core_, nullptr);
  slot_ = other.slot_;
  return *this;
}
Batch::~Batch() { release(); }
void Batch::release() {
  if (core_ != nullptr) std::exchange(core_, nullptr)->free_slot(slot_);
}
const std::byte* Batch::data() const {
  return reinterpret_cast<const std::byte*>(core_->slot(slot_).memory.data());
}
std::size_t Batch::bytes() const {
  return static_cast<std::size_t>(count()) * core_->stages().transform().output().bytes();
}
const std::int64_t* Batch::labels() const { return core_->slot(slot_).labels.data(); }
const float* Batch::probabilities() const {
  return classes() > 0 ? core_->slot(slot_).probabilities.data() : nullptr;
}
int Batch::classes() const { return core_->stages().transform().soft_classes(); }
std::int64_t Batch::count() const { return core_->slot(slot_).valid; }
std::int64_t Batch::global_count() const { return core_->slot(slot_).ticket.global; }
std::uint32_t Batch::epoch() const { return core_->slot(slot_).ticket.epoch; }
std::uint64_t Batch::index() const { return core_->slot(slot_).ticket.index; }
BatchHistory Batch::history() const { return core_->history(slot_); }

Loader::Loader(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
               LoaderOptions options)
    : reader_(std::move(reader)),
      transform_(std::move(transform)),
      options_(std::move(options)),
      core_(std::make_shared<LoaderCore>(reader_, transform_, options_)) {
  core_->start();
}
Loader::~Loader() {
  if (core_->stop()) return;
  // A worker is blocked in the kernel: what it may still touch has to outlive it.
  static auto* left_behind = new std::vector<std::shared_ptr<LoaderCore>>;
  left_behind->push_back(core_);
}
Batch Loader::next() {
  const auto slot = core_->next();
  return slot ? Batch(core_, *slot) : Batch();
}
void Loader::restart(int workers, std::shared_ptr<LoaderTracks> timeline) {
  LoaderOptions options = options_;
  options.workers = workers;
  options.io_threads = workers > 0 ? options_.io_threads : 0;
  options.timeline = std::move(timeline);
  options.first_batch = core_->consumed();
  if (core_->ended()) return;
  const LoaderStats so_far = stats();
  if (!core_->stop()) return;
  past_ = so_far;
  options_ = std::move(options);
  auto next = std::make_shared<LoaderCore>(reader_, transform_, options_);
  next->start();
  const std::lock_guard lock(swapping_);
  core_.swap(next);
}
int Loader::workers() const { return options_.workers; }
void Loader::interrupt() {
  const std::lock_guard lock(swapping_);
  core_->interrupt();
}
std::uint64_t Loader::batches_per_epoch() const { return core_->batches_per_epoch(); }
std::uint64_t Loader::samples_per_epoch() const { return core_->samples_per_epoch(); }
std::size_t Loader::slot_bytes() const { return core_->slot_bytes(); }
LoaderStats Loader::stats() const { return core_->stats() + past_; }
const SampleSpec& Loader::output() const { return core_->stages().transform().output(); }

}  // namespace millrace
