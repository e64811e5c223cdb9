// The life of a slot: opened, filled, handed out, returned.
#include "pipeline/loader/loader_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/number_text.h"
#include "measure/sample_range.h"
#include "millrace/error.h"
#include "pipeline/loader/noise.h"
#include "pipeline/targets/object_list.h"

namespace millrace::pipeline {
namespace {

/// Time that stop() waits for workers before it leaves a blocked one behind.
constexpr auto kStopTimeout = std::chrono::seconds(2);

/// Returns the options once they fit the data set and the chain.
const LoaderOptions& checked(const LoaderOptions& options, const Stages& stages) {
  check_batch(options, stages.reader());
  check_targets(options, stages.reader(), stages.transform());
  if (options.world > 1 && stages.transform().group() == MILLRACE_WHOLE_BATCH)
    throw UsageError(fmt::format("an op of the chain works on whole batches, which {} ranks would "
                                 "divide",
                                 options.world),
                     "use one rank, or leave the op out");
  return options;
}

/// Returns the ordinal behind the last batch that is made; from there on, slots are handed out
/// again.
std::uint64_t made_end(const LoaderOptions& options, std::uint64_t end, std::size_t slots) {
  switch (options.mode) {
    case LoaderMode::cached:
      return std::min(end, options.first_batch + slots);
    case LoaderMode::synthetic:
      return options.first_batch;
    default:
      return end;
  }
}

}  // namespace

LoaderCore::LoaderCore(std::shared_ptr<const Reader> reader,
                       std::shared_ptr<const Transform> transform, LoaderOptions options)
    : options_(std::move(options)),
      stages_(std::move(reader), std::move(transform), options_),
      batches_(checked(options_, stages_), stages_.sampler(), stages_.reader().info().count,
               stages_.transform().group()),
      slots_(
          static_cast<std::size_t>((options_.workers > 0 ? options_.prefetch : 1) + options_.held)),
      made_end_(made_end(options_, batches_.end(), slots_.size())),
      lookahead_(stages_.reader(), stages_.sampler(), batches_, options_.batch, made_end_),
      consumed_(options_.first_batch),
      freed_(options_.first_batch),
      workers_(static_cast<std::size_t>(std::max(1, options_.workers)), stages_.transform(),
               options_.only_libjpeg) {
  reserve_slots();
}

void LoaderCore::reserve_slots() {
  const auto most = static_cast<std::size_t>(batches_.largest());
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
  if (options_.mode == LoaderMode::synthetic)
    for (std::size_t i = 0; i < slots_.size(); ++i)
      fill_with_noise(slots_[i], i, most, stages_.transform(), stages_.reader().info());
}

void LoaderCore::start() {
  if (options_.workers == 0 || options_.mode == LoaderMode::synthetic) return;
  graph_ = std::make_unique<FlowGraph>(
      options_, made_end_, batches_.largest(), stages_, slots_, stop_,
      [this](std::uint64_t ordinal) { return open_batch(ordinal); },
      [this](const SampleRange& run) { work(run); });
  graph_->start();
}

bool LoaderCore::stop() {
  interrupt();
  if (graph_ == nullptr) return true;
  if (!graph_->stop(std::chrono::steady_clock::now() + kStopTimeout)) return false;
  const std::lock_guard lock(freeing_);  // a batch returned from now on must not use the graph
  graph_->wait();
  graph_.reset();
  return true;
}

void LoaderCore::interrupt() {
  stop_.store(true);
  stages_.interrupt();
  ready_event_.wake(slots_);
}

void LoaderCore::open_slot(std::uint64_t ordinal) {
  Slot& slot = slots_[ordinal % slots_.size()];
  slot.id = batches_.at(ordinal);
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

/// Opens the slot of a batch for the workers. Returns false if the batch is empty, and thus ready.
bool LoaderCore::open_batch(std::uint64_t ordinal) {
  open_slot(ordinal);
  lookahead_.announce(ordinal);
  Slot& slot = slots_[ordinal % slots_.size()];
  if (slot.id.count > 0) return true;
  back(slot);  // its consumer may look where its samples would be
  slot.valid = 0;
  slot.made = slot.opened;
  ready_event_.set(slot.ready);
  return false;
}

/// Makes sure that a slot has memory. The first worker of a batch lends it, as late as possible, so
/// that the block that was returned last is at hand.
void LoaderCore::back(Slot& slot) {
  if (slot.backed.load(std::memory_order_acquire)) return;
  pool_->lend(slot);
  slot.backed.store(true, std::memory_order_release);
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
  Slot& slot = slots_[run.slot];
  const WorkerPool::Lease worker = workers_.lease();
  back(slot);
  try {
    stages_.work(run, slot, *worker, stop_);
  } catch (...) {  // next() throws it; the graph would lose it
    slot.failures.note_error(run.first, std::current_exception());
  }
  record_range(slot, run, *worker);
  // A range that was abandoned must not complete its batch.
  if (stop_.load() || slot.missing.fetch_sub(run.count, std::memory_order_acq_rel) != run.count)
    return;
  finish(slot, *worker);
  if (options_.record) slot.made = base::Clock::now();
  ready_event_.set(slot.ready);
}

std::optional<std::size_t> LoaderCore::next() {
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) interrupt();
  if (ended()) return std::nullopt;
  const base::Clock::Ticks asked = options_.record ? base::Clock::now() : 0;
  {
    const std::lock_guard lock(freeing_);
    if (freed_ + slots_.size() <= consumed_)  // the next slot is still with the caller
      throw RunError(
          fmt::format("next(): the batch returned {} ago has not been released, and the loader has "
                      "only {}",
                      base::counted(slots_.size(), "call"), base::counted(slots_.size(), "slot")),
          options_.workers > 0 ? "release older batches first, or raise loader.prefetch"
                               : "release older batches first");
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
  lookahead_.announce(ordinal);
  back(slot);
  const WorkerPool::Lease worker = workers_.lease();
  const SampleRange run{index, 0, slot.id.count, 0};
  stages_.work(run, slot, *worker, stop_);
  record_range(slot, run, *worker);
  if (stop_.load(std::memory_order_relaxed)) return false;
  finish(slot, *worker);
  if (options_.record) slot.made = base::Clock::now();
  return true;
}

bool LoaderCore::wait_for(Slot& slot) {
  const bool sleeps = options_.record && slot.ready.load(std::memory_order_relaxed) != 1;
  if (sleeps) wake_delay_.before_wait();
  ready_event_.wait(slot.ready, stop_, options_.stop, options_.poll);
  if (slot.ready.load(std::memory_order_acquire) != 1) return false;
  slot.ready.store(0, std::memory_order_relaxed);
  if (sleeps) slot.core_wait = wake_delay_.after_wait(slot.made);
  return true;
}

void LoaderCore::record_range(Slot& slot, const SampleRange& run, const Worker& worker) const {
  if (!options_.record) return;
  measure::RangeHistory& unit = slot.units[run.unit];
  unit.first = static_cast<std::uint32_t>(run.first);
  unit.count = static_cast<std::uint32_t>(run.count);
  unit.worker = workers_.number_of(worker);
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
      graph_->slot_freed();
  }
}

std::shared_ptr<const BatchContents> LoaderCore::detach(std::size_t index) {
  return pool_->detach(slots_[index], /*copy=*/options_.mode != LoaderMode::normal);
}

LoaderStats LoaderCore::stats() const {
  LoaderStats stats;
  const double stages_cpu = workers_.add_to(stats);
  if (graph_ != nullptr) stats.machinery_cpu_s = std::max(0.0, graph_->cpu_seconds() - stages_cpu);
  if (graph_ != nullptr && graph_->io() != nullptr) {
    const StageTotals read = graph_->io()->totals();
    stats.read.calls += read.calls;
    stats.read.bytes += read.bytes;
    stats.read.wall_s += read.wall_s;
    stats.read.cpu_s += read.cpu_s;
    stats.io_threads = options_.io_threads;
  }
  stats.cold = stages_.reader().cold();
  stats.failed = stages_.failed();
  stats.extra_blocks = pool_->allocated();
  return stats;
}

}  // namespace millrace::pipeline
