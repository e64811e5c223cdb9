// Simulates the loader's threads, the storage and the device on shared cores.
#include "predict/loader_replay.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <stdexcept>

#include "measure/sample_range.h"
#include "predict/shared_cores.h"

namespace millrace::predict {
namespace {

/// Divisors below this, in seconds, are rounding errors (less than one cycle).
constexpr double kNothing = 1e-12;

/// Samples [first, first + count) of one batch.
struct SampleRange {
  std::uint64_t ordinal = 0;
  std::int64_t first = 0, count = 0;
  std::int64_t claimed = 0, read = 0;  ///< by the I/O threads
};

/// Storage with the arithmetic of the emulated disk (StorageModel::finish_ns), in simulated time.
class Disk {
 public:
  Disk(const ReplayStorage& options, int ranks) : options_(options), ranks_(ranks) {}
  double finish(double now, double bytes) {
    double time = now;
    if (options_.requests_per_s > 0) {
      const double request = ranks_ / options_.requests_per_s;
      time = next_request_ = std::max(time, next_request_) + request;
      requests_busy_ += request;
    }
    time += options_.latency_s;
    if (options_.bytes_per_s > 0) {
      const double transfer = ranks_ * bytes / options_.bytes_per_s;
      time = bus_free_ = std::max(time, bus_free_) + transfer;
      bus_busy_ += transfer;
    }
    return time;
  }
  double busy() const { return std::max(requests_busy_, bus_busy_); }

 private:
  const ReplayStorage options_;
  const double ranks_;
  double next_request_ = 0, bus_free_ = 0;
  double requests_busy_ = 0, bus_busy_ = 0;
};

class Simulation {
 public:
  explicit Simulation(const ReplayInput& input);
  ReplayOutput run();

 private:
  /// A worker, an I/O thread, or the trainer as its own worker.
  struct SimThread {
    std::size_t thread = 0;  ///< of the cores
    SampleRange* range = nullptr;
    std::int64_t place = 0;  ///< current sample's index in the batch
    enum class At { reading, waiting, working } at = At::reading;
    double begin = 0;  ///< start of the read
    double range_begin = 0;
  };
  enum class At { making, blocked, waking, taking, update, host };

  std::int64_t count_of(std::uint64_t ordinal) const;
  std::size_t pick(std::uint64_t ordinal, std::int64_t place, std::size_t of) const;
  double demand(std::uint64_t ordinal, std::int64_t place) const;
  std::int64_t unit_size(std::int64_t count) const;
  bool reads_wait() const { return in_.storage.limited() && !in_.bytes.empty(); }
  double deadline(const SimThread& sim);

  void open_batches();
  void hand_out();
  void advance();
  void begin_range(SimThread& sim, SampleRange* range);
  void begin_sample(SimThread& sim);
  /// Starts the next phase. Returns false once the range is done.
  bool next_phase(SimThread& sim);
  void worker_ended(SimThread& worker);
  void reader_ended(SimThread& reader);
  void trainer_ended();
  void begin_load();
  void take();
  void begin_update();
  void end_update();
  void end_step();

  const ReplayInput& in_;
  const std::uint64_t batches_per_epoch_;
  const std::uint64_t slots_;
  const std::uint64_t total_;  ///< number of steps
  Disk disk_;
  SharedCores cores_;

  SimThread trainer_;  ///< thread 0; the readers' and the workers' follow
  std::vector<SimThread> readers_, workers_;
  std::deque<SampleRange> ranges_;  ///< every range so far: the queues below hold pointers into it
  std::deque<SampleRange*> to_read_, to_work_;
  std::vector<std::int64_t> missing_;  ///< samples not yet done, by slot
  std::uint64_t issued_ = 0, freed_ = 0;
  double cost_ = 0;  ///< wall time per sample of the last range

  At at_ = At::blocked;
  std::uint64_t step_ = 0;
  double span_begin_ = 0;
  double counted_from_ = 0;
  double load_ = 0, update_ = 0, other_ = 0;
  double cores_before_ = 0, workers_busy_ = 0, device_busy_ = 0, disk_before_ = 0;
  std::int64_t images_ = 0;
};

Simulation::Simulation(const ReplayInput& input)
    : in_(input),
      batches_per_epoch_(std::max<std::uint64_t>(
          1, (input.samples + (input.drop_last ? 0 : static_cast<std::uint64_t>(input.batch) - 1)) /
                 static_cast<std::uint64_t>(input.batch))),
      slots_(static_cast<std::uint64_t>(input.prefetch) + 1),
      total_(input.warm_up + input.steps),
      disk_(input.storage, input.ranks),
      cores_({.count = input.cores,
              .ranks = input.ranks,
              .crowding = {input.crowding_stage, input.crowding_update, 1}},
             1 + static_cast<std::size_t>(input.workers + input.io_threads)) {
  workers_.resize(static_cast<std::size_t>(input.workers));
  if (input.workers > 0) readers_.resize(static_cast<std::size_t>(input.io_threads));
  std::size_t thread = 0;
  for (SimThread& reader : readers_) reader.thread = ++thread;
  for (SimThread& worker : workers_) worker.thread = ++thread;
  missing_.resize(slots_);
}

std::int64_t Simulation::count_of(std::uint64_t ordinal) const {
  const auto batch = static_cast<std::uint64_t>(in_.batch);
  return static_cast<std::int64_t>(
      std::min(batch, in_.samples - ordinal % batches_per_epoch_ * batch));
}

/// Returns an index into a list of `of` demands. Each epoch visits the list in another order, and
/// visits all of it if it is as long as the epoch: strides are prime.
std::size_t Simulation::pick(std::uint64_t ordinal, std::int64_t place, std::size_t of) const {
  const std::uint64_t position =
      ordinal % batches_per_epoch_ * static_cast<std::uint64_t>(in_.batch) +
      static_cast<std::uint64_t>(place);
  return static_cast<std::size_t>((position * 7919 + ordinal / batches_per_epoch_ * 104'729) % of);
}

double Simulation::demand(std::uint64_t ordinal, std::int64_t place) const {
  const double weight =
      in_.weights.empty() ? 1 : in_.weights[pick(ordinal, place, in_.weights.size())];
  return in_.sample_s * weight + (place == 0 ? in_.batch_s : 0);
}

std::int64_t Simulation::unit_size(std::int64_t count) const {
  if (in_.grain > 0) return in_.grain;
  return measure::samples_per_range(count, in_.workers, in_.prefetch, 1e9 * cost_);
}

void Simulation::open_batches() {
  if (workers_.empty()) return;
  for (; issued_ < freed_ + slots_; ++issued_) {
    const std::int64_t count = count_of(issued_);
    missing_[issued_ % slots_] = count;
    const std::int64_t size = unit_size(count);
    for (std::int64_t first = 0; first < count; first += size) {
      ranges_.push_back({issued_, first, std::min(size, count - first), 0, 0});
      (readers_.empty() ? to_work_ : to_read_).push_back(&ranges_.back());
    }
  }
}

void Simulation::hand_out() {
  for (SimThread& reader : readers_) {
    if (!cores_.is_idle(reader.thread) || to_read_.empty()) continue;
    SampleRange* range = to_read_.front();
    reader.range = range;
    reader.place = range->first + range->claimed++;
    if (range->claimed == range->count) to_read_.pop_front();
    begin_sample(reader);
  }
  for (SimThread& worker : workers_) {
    if (!cores_.is_idle(worker.thread) || to_work_.empty()) continue;
    begin_range(worker, to_work_.front());
    to_work_.pop_front();
  }
}

double Simulation::deadline(const SimThread& sim) {
  const double bytes = in_.bytes[pick(sim.range->ordinal, sim.place, in_.bytes.size())];
  return disk_.finish(sim.begin, bytes);
}

void Simulation::begin_range(SimThread& sim, SampleRange* range) {
  sim.range = range;
  sim.place = range->first;
  sim.range_begin = cores_.now();
  begin_sample(sim);
}

void Simulation::begin_sample(SimThread& sim) {
  sim.begin = cores_.now();
  const bool read_already = !readers_.empty() && sim.range->read == sim.range->count;
  if (!reads_wait() || read_already) {  // nothing to wait for: runs the whole range at once
    sim.at = SimThread::At::working;
    double cpu = read_already ? 0 : in_.read_s;
    if (!readers_.empty() && !read_already) {
      cores_.run(sim.thread, Work::stage, cpu);
      return;
    }
    cpu *= static_cast<double>(sim.range->count);
    for (std::int64_t i = 0; i < sim.range->count; ++i)
      cpu += demand(sim.range->ordinal, sim.range->first + i);
    sim.place = sim.range->first + sim.range->count - 1;
    cores_.run(sim.thread, Work::stage, cpu);
    return;
  }
  sim.at = SimThread::At::reading;
  cores_.run(sim.thread, Work::stage, in_.read_s);
}

bool Simulation::next_phase(SimThread& sim) {
  switch (sim.at) {
    case SimThread::At::reading:
      sim.at = SimThread::At::waiting;
      cores_.sleep_until(sim.thread, deadline(sim));
      return true;
    case SimThread::At::waiting:
      sim.at = SimThread::At::working;
      cores_.run(sim.thread, Work::stage, demand(sim.range->ordinal, sim.place));
      return true;
    case SimThread::At::working:
      if (++sim.place == sim.range->first + sim.range->count) return false;
      begin_sample(sim);
      return true;
  }
  return false;
}

void Simulation::worker_ended(SimThread& worker) {
  if (next_phase(worker)) return;
  cost_ = (cores_.now() - worker.range_begin) / static_cast<double>(worker.range->count);
  missing_[worker.range->ordinal % slots_] -= worker.range->count;
}

void Simulation::reader_ended(SimThread& reader) {
  if (reader.at == SimThread::At::reading) {
    next_phase(reader);
    return;
  }
  if (++reader.range->read == reader.range->count) to_work_.push_back(reader.range);
}

void Simulation::begin_load() {
  span_begin_ = cores_.now();
  if (workers_.empty()) {
    at_ = At::making;
    ranges_.assign(1, {step_, 0, count_of(step_), 0, 0});
    begin_range(trainer_, &ranges_.back());
    return;
  }
  at_ = At::blocked;
}

void Simulation::take() {
  at_ = At::taking;
  cores_.run(trainer_.thread, Work::host, in_.take_s);
}

void Simulation::begin_update() {
  load_ += cores_.now() - span_begin_;
  span_begin_ = cores_.now();
  at_ = At::update;
  if (in_.frees_early) freed_ = step_ + 1;
  if (in_.update_threads == 0) {
    cores_.sleep_until(trainer_.thread, cores_.now() + in_.update_s);
    return;
  }
  cores_.run(trainer_.thread, Work::update, in_.update_s, in_.update_threads);
}

void Simulation::end_update() {
  update_ += cores_.now() - span_begin_;
  span_begin_ = cores_.now();
  freed_ = step_ + 1;
  images_ += count_of(step_);
  at_ = At::host;
  cores_.run(trainer_.thread, Work::host, in_.host_s);
}

void Simulation::end_step() {
  other_ += cores_.now() - span_begin_;
  if (++step_ == in_.warm_up) {
    load_ = update_ = other_ = workers_busy_ = device_busy_ = 0;
    cores_before_ = cores_.busy_s();
    images_ = 0;
    counted_from_ = cores_.now();
    disk_before_ = disk_.busy();
  }
  begin_load();
}

void Simulation::trainer_ended() {
  switch (at_) {
    case At::making:
      if (!next_phase(trainer_)) begin_update();
      return;
    case At::blocked:
      return;
    case At::waking:
      take();
      return;
    case At::taking:
      begin_update();
      return;
    case At::update:
      end_update();
      return;
    case At::host:
      end_step();
      return;
  }
}

void Simulation::advance() {
  const double before = cores_.now();
  const auto busy = std::count_if(workers_.begin(), workers_.end(), [&](const SimThread& worker) {
    return !cores_.is_idle(worker.thread);
  });
  const bool updating = at_ == At::update;
  const std::span<const std::size_t> ended = cores_.advance();
  const double passed = cores_.now() - before;
  workers_busy_ += static_cast<double>(busy) * passed;
  if (updating) device_busy_ += passed;
  bool trainer = false;  // goes on last, with what the others have made
  for (const std::size_t thread : ended) {
    if (thread == trainer_.thread)
      trainer = true;
    else if (thread <= readers_.size())
      reader_ended(readers_[thread - 1]);
    else
      worker_ended(workers_[thread - 1 - readers_.size()]);
  }
  if (trainer) trainer_ended();
}

ReplayOutput Simulation::run() {
  begin_load();
  while (step_ < total_) {
    open_batches();
    if (at_ == At::blocked && issued_ > step_ && missing_[step_ % slots_] == 0) {
      if (cores_.now() > span_begin_) {  // the thread slept
        at_ = At::waking;
        cores_.sleep_until(trainer_.thread, cores_.now() + in_.wake_s);
      } else {
        take();
      }
    }
    hand_out();
    advance();
  }
  const auto steps = static_cast<double>(in_.steps);
  const double wall = std::max(cores_.now() - counted_from_, kNothing);
  return {.images_per_s =
              in_.ranks * static_cast<double>(images_) / std::max(load_ + update_, kNothing),
          .load_s = load_ / steps,
          .update_s = update_ / steps,
          .other_s = other_ / steps,
          .cores_busy = (cores_.busy_s() - cores_before_) / (wall * in_.cores),
          .workers_busy =
              workers_.empty() ? 0 : workers_busy_ / (wall * static_cast<double>(in_.workers)),
          .device_busy = device_busy_ / wall,
          .storage_busy = (disk_.busy() - disk_before_) / wall};
}

}  // namespace

ReplayOutput replay(const ReplayInput& input) {
  if (input.cores < 1 || input.workers < 0 || input.prefetch < 1 || input.batch < 1 ||
      input.samples < (input.drop_last ? static_cast<std::uint64_t>(input.batch) : 1) ||
      input.steps < 1 || input.ranks < 1)
    throw std::invalid_argument(
        "a replay needs cores, samples, a batch, room for one ahead, and steps");
  return Simulation(input).run();
}

}  // namespace millrace::predict
