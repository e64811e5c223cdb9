// Slots, the order of batches, and the consumer's side of the loader.
#include "pipeline/loader/loader_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "measure/batch_history.h"
#include "measure/sample_range.h"
#include "measure/scheduler_wait.h"
#include "millrace/error.h"
#include "pipeline/loader/noise.h"
#include "pipeline/targets/object_list.h"

namespace millrace::pipeline {
namespace {

/// Time that stop() waits for workers before it leaves a blocked one behind.
constexpr auto kStopTimeout = std::chrono::seconds(2);
/// Time within which a caller has its batch if it gets a core when it is woken.
constexpr double kPromptWake = 50e-6;
/// Age up to which the caller's scheduler wait is not read again; reading it takes about 1 µs.
constexpr double kCoreTimeValid = 1e-3;

}  // namespace

LoaderCore::LoaderCore(std::shared_ptr<const Reader> reader,
                       std::shared_ptr<const Transform> transform, LoaderOptions options)
    : options_(std::move(options)),
      stages_(std::move(reader), std::move(transform), options_),
      slots_(
          static_cast<std::size_t>((options_.workers > 0 ? options_.prefetch : 1) + options_.held)),
      workers_(static_cast<std::size_t>(std::max(1, options_.workers))) {
  check_batch(options_, stages_.reader());
  check_targets(options_, stages_.reader(), stages_.transform());
  if (options_.world > 1 && stages_.transform().group() == MILLRACE_WHOLE_BATCH)
    throw UsageError(fmt::format("an op of the chain works on whole batches, which {} ranks would "
                                 "divide",
                                 options_.world),
                     "use one rank, or leave the op out");
  batches_per_epoch_ = millrace::batches_per_epoch(options_, stages_.reader().info().count);
  max_ = 1;
  for (const std::uint64_t index : {std::uint64_t{0}, batches_per_epoch_ - 1})
    max_ = std::max(max_, slice_of(global_count(index)).count);
  end_ = batches_per_epoch_ * options_.epochs;
  if (options_.first_batch > end_)
    throw UsageError(fmt::format("batch {} lies behind the last one: there are {} in {} epochs",
                                 options_.first_batch, end_, options_.epochs));
  made_end_ = end_;
  if (options_.mode == LoaderMode::cached)
    made_end_ = std::min(end_, options_.first_batch + slots_.size());
  if (options_.mode == LoaderMode::synthetic) made_end_ = options_.first_batch;
  issued_ = freed_ = announced_ = options_.first_batch;
  consumed_ = options_.first_batch;
  const auto most = static_cast<std::size_t>(max_);
  const SampleSpec& output = stages_.transform().output();  // the largest of all epochs
  const BatchShape shape{most,
                         output.bytes(),
                         stages_.mask_bytes(output.size),
                         static_cast<std::size_t>(stages_.transform().soft_classes()),
                         options_.warps,
                         stages_.reader().info().members.size()};
  const bool recycles = options_.mode == LoaderMode::normal;
  pool_ = std::make_shared<BatchPool>(options_.memory, recycles ? slots_.size() : 0, shape,
                                      slots_.size() + 1);
  slot_bytes_ = slots_.size() * pool_->block_bytes();
  for (Slot& slot : slots_) {
    slot.classes = shape.classes;
    if (!recycles) {  // what it holds is handed out again
      slot.reserve(options_.memory, shape);
      slot.backed = true;
      slot_bytes_ += slot.memory.size();
    }
    slot.units.reserve(most);
    if (const Annotations* annotations = stages_.reader().annotations())
      slot.range_objects =
          range_lists(*annotations, most, stages_.instance_mask_bytes(output.size));
    if (options_.workers > 0 && options_.io_threads > 0) slot.fetched.resize(most);
    // Reserve enough for all but the rare large sample, so that few buffers have to grow.
    const DatasetInfo& info = stages_.reader().info();
    for (Fetched& fetched : slot.fetched)
      if (!info.in_place) fetched.bytes.reserve(2 * info.bytes / info.count);
  }
  for (Worker& worker : workers_) {
    worker.transform = stages_.transform().make_scratch();
    worker.decode.use_libjpeg(options_.only_libjpeg);
  }
  if (options_.mode == LoaderMode::synthetic)
    for (std::size_t i = 0; i < slots_.size(); ++i)
      fill_with_noise(slots_[i], i, most, stages_.transform(), stages_.reader().info());
}

LoaderCore::~LoaderCore() = default;

void LoaderCore::start() {
  if (options_.workers == 0 || options_.mode == LoaderMode::synthetic) return;
  graph_ = std::make_unique<Graph>(*this);
  annotate_release(&begun_);
  graph_->source->activate();
}

bool LoaderCore::stop() {
  interrupt();
  if (graph_ == nullptr) return true;
  const auto deadline = std::chrono::steady_clock::now() + kStopTimeout;
  const bool read = graph_->stop_reading(deadline);
  graph_->graph->cancel();
  if (!read) return false;
  while (busy_.load() > 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  {
    // A batch returned from now on must not use the graph.
    const std::lock_guard lock(freeing_);
    graph_->graph->wait_for_all();
    annotate_acquire(&ended_);
    graph_.reset();
  }
  return true;
}

void LoaderCore::interrupt() {
  stop_.store(true);
  stages_.interrupt();
  ready_event_.wake(slots_);
}

std::int64_t LoaderCore::global_count(std::uint64_t index) const {
  const auto batch = static_cast<std::uint64_t>(options_.batch);
  const std::uint64_t samples = epoch_samples(options_, stages_.reader().info().count);
  return static_cast<std::int64_t>(std::min(batch, samples - index * batch));
}

Slice LoaderCore::slice_of(std::int64_t global) const {
  const int group = std::max(1, stages_.transform().group());  // a whole batch has one rank
  return rank_slice(global, options_.rank, options_.world, group);
}

BatchId LoaderCore::batch_id(std::uint64_t ordinal) const {
  BatchId id;
  id.ordinal = ordinal;
  id.epoch = static_cast<std::uint32_t>(ordinal / batches_per_epoch_);
  id.index = ordinal % batches_per_epoch_;
  id.global = global_count(id.index);
  const Slice slice = slice_of(id.global);
  id.first = id.index * static_cast<std::uint64_t>(options_.batch) +
             static_cast<std::uint64_t>(slice.first);
  id.count = stages_.sampler().has_order(id.epoch) ? slice.count : 0;
  return id;
}

void LoaderCore::open_slot(std::uint64_t ordinal) {
  Slot& slot = slots_[ordinal % slots_.size()];
  slot.id = batch_id(ordinal);
  stages_.shape(slot);
  const std::int64_t count = slot.id.count;
  const bool whole = options_.workers == 0;
  slot.grain = whole ? std::max<std::int64_t>(1, count) : unit(count);
  slot.units.assign(static_cast<std::size_t>(whole ? 1 : (count + slot.grain - 1) / slot.grain),
                    {});
  slot.failures.clear();
  if (options_.record) slot.opened = base::Clock::now();
  slot.ready.store(0, std::memory_order_relaxed);
  slot.freed.store(0, std::memory_order_relaxed);
}

/// Makes sure that a slot has memory. The first worker of a batch lends it, as late as possible, so
/// that the block that was returned last is at hand.
void LoaderCore::back(Slot& slot) {
  if (slot.backed.load(std::memory_order_acquire)) return;
  pool_->lend(slot);
  slot.backed.store(true, std::memory_order_release);
}

/// Tells the reader which samples it will be asked for once it is done with this batch.
void LoaderCore::announce(std::uint64_t ordinal) {
  const Reader& reader = stages_.reader();
  const std::uint64_t ahead = reader.lookahead();
  if (ahead == 0) return;
  const auto batch = static_cast<std::uint64_t>(options_.batch);
  const std::uint64_t behind = std::min(made_end_, ordinal + 1 + (ahead + batch - 1) / batch);
  for (announced_ = std::max(announced_, ordinal); announced_ < behind; ++announced_) {
    const BatchId id = batch_id(announced_);
    const EpochOrder order = stages_.sampler().order(id.epoch);
    for (std::int64_t i = 0; i < id.count; ++i)
      reader.expect(order(id.first + static_cast<std::uint64_t>(i)));
  }
}

Worker& LoaderCore::acquire_worker() {
  // As many workers as threads, so one is always free.
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
  return measure::samples_per_range(count, options_.workers, options_.prefetch,
                                    static_cast<double>(stages_.cost_ns()));
}

void LoaderCore::finish(Slot& slot, Worker& worker) {
  try {
    stages_.finish(slot, worker);
  } catch (...) {
    slot.failures.note_error(0, std::current_exception());
  }
}

void LoaderCore::work(const SampleRange& run) {
  busy_.fetch_add(1);  // before reading stop_; stop() writes it before it reads busy_
  if (!stop_.load()) {
    Slot& slot = slots_[run.slot];
    // Acquires the split node's writes.
    static_cast<void>(slot.missing.load(std::memory_order_acquire));
    // Acquires the I/O threads' writes.
    static_cast<void>(slot.fetched_runs.load(std::memory_order_acquire));
    Worker& worker = acquire_worker();
    back(slot);
    try {
      stages_.work(run, slot, worker, stop_);
    } catch (...) {  // next() throws it; the graph would lose it
      slot.failures.note_error(run.first, std::current_exception());
    }
    record_range(slot, run, worker);
    // A range that was abandoned must not complete its batch.
    if (!stop_.load() &&
        slot.missing.fetch_sub(run.count, std::memory_order_acq_rel) == run.count) {
      finish(slot, worker);
      if (options_.record) slot.made = base::Clock::now();
      ready_event_.set(slot.ready);
    }
    worker.leased.store(false, std::memory_order_release);
  }
  busy_.fetch_sub(1);
}

std::optional<std::size_t> LoaderCore::next() {
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) interrupt();
  if (consumed_ >= end_ || stop_.load(std::memory_order_relaxed)) return std::nullopt;
  const base::Clock::Ticks asked = options_.record ? base::Clock::now() : 0;
  {
    const std::lock_guard lock(freeing_);
    if (freed_ + slots_.size() <= consumed_)  // the next slot is still with the caller
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
  try {
    if (consumed_ >= made_end_) {
      reissue_slot(consumed_);
    } else if (!(options_.workers == 0 ? make_inline(consumed_) : wait_for(slot))) {
      return std::nullopt;
    }
    stages_.report(slot);
    if (slot.failures.error() != nullptr) std::rethrow_exception(slot.failures.error());
  } catch (const Error& error) {
    interrupt();
    // Work that ended because of options.stop ends the batches as it does.
    if (error.exit() == Exit::interrupted && options_.stop != nullptr && options_.stop->load())
      return std::nullopt;
    throw;
  } catch (...) {
    interrupt();
    throw;
  }
  ++consumed_;
  if (options_.record) {
    slot.asked = asked;
    slot.got = base::Clock::now();
    if (options_.timeline != nullptr) trace(slot);
  }
  return index;
}

/// Hands out a slot's earlier samples as a new batch.
void LoaderCore::reissue_slot(std::uint64_t ordinal) {
  Slot& slot = slots_[ordinal % slots_.size()];
  // A smaller batch uses the first of the samples that were made.
  slot.kept = std::max(slot.kept, slot.valid);
  open_slot(ordinal);
  slot.units.clear();
  slot.valid = std::min(slot.id.count, slot.kept);
  slot.made = slot.opened;
}

bool LoaderCore::make_inline(std::uint64_t ordinal) {
  const std::size_t index = ordinal % slots_.size();
  Slot& slot = slots_[index];
  open_slot(ordinal);
  announce(ordinal);
  back(slot);
  const SampleRange run{index, 0, slot.id.count, 0};
  stages_.work(run, slot, workers_[0], stop_);
  record_range(slot, run, workers_[0]);
  if (stop_.load(std::memory_order_relaxed)) return false;
  finish(slot, workers_[0]);
  if (options_.record) slot.made = base::Clock::now();
  return true;
}

bool LoaderCore::wait_for(Slot& slot) {
  const bool sleeps = options_.record && slot.ready.load(std::memory_order_relaxed) != 1;
  if (const base::Clock::Ticks now = base::Clock::now();
      sleeps && now - core_read_at_ > base::Clock::ticks(kCoreTimeValid)) {
    core_read_at_ = now;
    core_wait_ns_ = measure::SchedulerWait::mine().core_wait_ns();
  }
  ready_event_.wait(slot.ready, stop_, options_.stop, options_.poll);
  if (slot.ready.load(std::memory_order_acquire) != 1) return false;
  slot.ready.store(0, std::memory_order_relaxed);
  if (const base::Clock::Ticks now = base::Clock::now();
      sleeps && now - slot.made > base::Clock::ticks(kPromptWake)) {
    const std::int64_t before =
        std::exchange(core_wait_ns_, measure::SchedulerWait::mine().core_wait_ns());
    slot.core_wait = base::Clock::ticks(static_cast<double>(core_wait_ns_ - before) * 1e-9);
    core_read_at_ = now;
  }
  return true;
}

void LoaderCore::record_range(Slot& slot, const SampleRange& run, const Worker& worker) const {
  if (!options_.record) return;
  measure::RangeHistory& unit = slot.units[run.unit];
  unit.first = static_cast<std::uint32_t>(run.first);
  unit.count = static_cast<std::uint32_t>(run.count);
  unit.worker = static_cast<std::uint32_t>(&worker - workers_.data());
  if (options_.timeline != nullptr)
    options_.timeline->worker(unit.worker).add({slot.id.ordinal, unit});
}

void LoaderCore::trace(const Slot& slot) const {
  const BatchId& id = slot.id;
  options_.timeline->batches().add(
      {id.ordinal, id.epoch, id.index, slot.asked, slot.opened, slot.made, slot.got});
}

measure::BatchHistory LoaderCore::history(std::size_t index) const {
  const Slot& slot = slots_[index];
  const BatchId& id = slot.id;
  if (!options_.record) return {};
  return {.ordinal = id.ordinal,
          .epoch = id.epoch,
          .index = id.index,
          .first = id.ordinal == options_.first_batch,
          .made_inline = options_.workers == 0,
          .asked = slot.asked,
          .opened = slot.opened,
          .ready = slot.made,
          .got = slot.got,
          .core_wait = slot.core_wait,
          .units = slot.units};
}

void LoaderCore::free_slot(std::size_t index) {
  Slot& slot = slots_[index];
  if (options_.mode == LoaderMode::normal) {
    if (slot.has_memory()) pool_->take_back(slot);  // a detached batch has taken it along
    slot.backed.store(false, std::memory_order_relaxed);
  }
  slot.freed.store(1, std::memory_order_release);
  // The limiter counts slots, but the next ordinal needs a certain one, so slots are reported in
  // order.
  const std::lock_guard lock(freeing_);
  while (freed_ < consumed_ && slots_[freed_ % slots_.size()].freed.load() == 1) {
    ++freed_;
    if (graph_ != nullptr && freed_ <= made_end_ && !stop_.load(std::memory_order_relaxed))
      graph_->limiter->decrementer().try_put(flow::continue_msg());
  }
}

std::shared_ptr<const BatchContents> LoaderCore::detach(std::size_t index) {
  return pool_->detach(slots_[index], /*copy=*/options_.mode != LoaderMode::normal);
}

std::uint64_t LoaderCore::samples_per_epoch() const {
  return options_.drop_last ? batches_per_epoch_ * static_cast<std::uint64_t>(options_.batch)
                            : epoch_samples(options_, stages_.reader().info().count);
}

LoaderStats LoaderCore::stats() const {
  LoaderStats stats;
  StageTotals* totals[measure::kStageCount] = {&stats.read, &stats.decode, &stats.augment};
  const double rate = base::Clock::seconds_per_tick();
  double stages_cpu = 0;
  for (const Worker& worker : workers_) {
    for (std::size_t i = 0; i < measure::kStageCount; ++i) {
      const StageRecord& record = worker.records[i];
      const double wall = static_cast<double>(record.ticks.get()) * rate;
      // CPU time per call comes from the ranges that measured it; the cost of reading that clock is
      // ignored.
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
    stats.busy_s += base::Clock::seconds(worker.busy_ticks.get());
    stats.core_wait_s += base::Clock::seconds(worker.core_wait_ticks.get());
  }
  stats.cold = stages_.reader().cold();
  stats.failed = stages_.failed();
  stats.extra_blocks = pool_->allocated();
  return stats;
}

}  // namespace millrace::pipeline
