// Discrete-event simulation of the loader's threads, the storage, the device and the cores.
#include "study/analysis/replay.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "millrace/error.h"

namespace millrace::study {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Demands below this are rounding errors (less than one cycle).
constexpr double kNothing = 1e-12;
/// Duration of a range of samples that the loader aims at (pipeline/loader/loader.cpp).
constexpr double kUnitS = 200e-6;

enum class Work { stage, update, host };

/// Runs on a core by turns, sleeps, or is idle.
struct Thread {
  enum class State { idle, running, asleep };
  State state = State::idle;
  bool ended = false;  ///< became idle at this event
  Work work = Work::host;
  double left = 0;        ///< running: CPU seconds left
  double until = kNever;  ///< asleep: until this time

  void run(Work what, double demand) {
    state = State::running;
    work = what;
    left = demand;
  }
  void sleep(double end) {
    state = State::asleep;
    until = end;
  }
  bool idle() const { return state == State::idle; }
};

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
    Thread thread;
    SampleRange* range = nullptr;
    std::int64_t place = 0;  ///< current sample's index in the batch
    enum class At { reading, waiting, working } at = At::reading;
    double begin = 0;  ///< start of the read
    double range_begin = 0;
  };
  struct Batch {
    std::int64_t missing = 0;
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
  template <class Visit>
  void each_thread(const Visit& visit);

  const ReplayInput& in_;
  const std::uint64_t batches_per_epoch_;
  const std::uint64_t slots_;
  const std::uint64_t total_;  ///< number of steps
  Disk disk_;
  double now_ = 0;

  SimThread trainer_;
  std::vector<Thread> helpers_;  ///< the other threads of an update on the CPU
  std::vector<SimThread> workers_, readers_;
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
  double cpu_busy_ = 0, workers_busy_ = 0, device_busy_ = 0, disk_before_ = 0;
  std::int64_t images_ = 0;
};

Simulation::Simulation(const ReplayInput& input)
    : in_(input),
      batches_per_epoch_(std::max<std::uint64_t>(
          1, (input.samples + (input.drop_last ? 0 : static_cast<std::uint64_t>(input.batch) - 1)) /
                 static_cast<std::uint64_t>(input.batch))),
      slots_(static_cast<std::uint64_t>(input.prefetch) + 1),
      total_(input.warm_up + input.steps),
      disk_(input.storage, input.ranks) {
  workers_.resize(static_cast<std::size_t>(input.workers));
  if (input.workers > 0) readers_.resize(static_cast<std::size_t>(input.io_threads));
  helpers_.resize(static_cast<std::size_t>(std::max(1, input.update_threads) - 1));
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
  const std::int64_t workers = in_.workers;
  const std::int64_t least = (workers + in_.prefetch - 1) / in_.prefetch;
  const std::int64_t grain = (count + least - 1) / least;
  if (cost_ <= 0) return std::max<std::int64_t>(1, (count + workers - 1) / workers);
  return std::max<std::int64_t>(1, std::min(grain, static_cast<std::int64_t>(kUnitS / cost_)));
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
    if (!reader.thread.idle() || to_read_.empty()) continue;
    SampleRange* range = to_read_.front();
    reader.range = range;
    reader.place = range->first + range->claimed++;
    if (range->claimed == range->count) to_read_.pop_front();
    begin_sample(reader);
  }
  for (SimThread& worker : workers_) {
    if (!worker.thread.idle() || to_work_.empty()) continue;
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
  sim.range_begin = now_;
  begin_sample(sim);
}

void Simulation::begin_sample(SimThread& sim) {
  sim.begin = now_;
  const bool read_already = !readers_.empty() && sim.range->read == sim.range->count;
  if (!reads_wait() || read_already) {  // nothing to wait for: runs the whole range at once
    sim.at = SimThread::At::working;
    double cpu = read_already ? 0 : in_.read_s;
    if (!readers_.empty() && !read_already) {
      sim.thread.run(Work::stage, cpu);
      return;
    }
    cpu *= static_cast<double>(sim.range->count);
    for (std::int64_t i = 0; i < sim.range->count; ++i)
      cpu += demand(sim.range->ordinal, sim.range->first + i);
    sim.place = sim.range->first + sim.range->count - 1;
    sim.thread.run(Work::stage, cpu);
    return;
  }
  sim.at = SimThread::At::reading;
  sim.thread.run(Work::stage, in_.read_s);
}

bool Simulation::next_phase(SimThread& sim) {
  switch (sim.at) {
    case SimThread::At::reading:
      sim.at = SimThread::At::waiting;
      sim.thread.sleep(std::max(now_, deadline(sim)));
      return true;
    case SimThread::At::waiting:
      sim.at = SimThread::At::working;
      sim.thread.run(Work::stage, demand(sim.range->ordinal, sim.place));
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
  cost_ = (now_ - worker.range_begin) / static_cast<double>(worker.range->count);
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
  span_begin_ = now_;
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
  trainer_.thread.run(Work::host, in_.take_s);
}

void Simulation::begin_update() {
  load_ += now_ - span_begin_;
  span_begin_ = now_;
  at_ = At::update;
  if (in_.frees_early) freed_ = step_ + 1;
  if (in_.update_threads == 0) {
    trainer_.thread.sleep(now_ + in_.update_s);
    return;
  }
  trainer_.thread.run(Work::update, in_.update_s);
  for (Thread& helper : helpers_) helper.run(Work::update, in_.update_s);
}

void Simulation::end_update() {
  update_ += now_ - span_begin_;
  span_begin_ = now_;
  freed_ = step_ + 1;
  images_ += count_of(step_);
  at_ = At::host;
  trainer_.thread.run(Work::host, in_.host_s);
}

void Simulation::end_step() {
  other_ += now_ - span_begin_;
  if (++step_ == in_.warm_up) {
    load_ = update_ = other_ = cpu_busy_ = workers_busy_ = device_busy_ = 0;
    images_ = 0;
    counted_from_ = now_;
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
      for (const Thread& helper : helpers_)
        if (!helper.idle()) return;
      if (trainer_.thread.idle()) end_update();
      return;
    case At::host:
      end_step();
      return;
  }
}

template <class Visit>
void Simulation::each_thread(const Visit& visit) {
  visit(trainer_.thread);
  for (Thread& helper : helpers_) visit(helper);
  for (SimThread& reader : readers_) visit(reader.thread);
  for (SimThread& worker : workers_) visit(worker.thread);
}

void Simulation::advance() {
  int running = 0;
  each_thread([&](const Thread& thread) { running += thread.state == Thread::State::running; });
  running *= in_.ranks;
  const int busy = std::min(running, in_.cores);
  const double share = running > 0 ? static_cast<double>(busy) / running : 1;
  const double crowd =
      in_.cores > 1 && busy > 1 ? static_cast<double>(busy - 1) / (in_.cores - 1) : 0;
  const auto rate = [&](const Thread& thread) {
    const double most = thread.work == Work::stage    ? in_.crowding_stage
                        : thread.work == Work::update ? in_.crowding_update
                                                      : 1;
    return share / (1 + (most - 1) * crowd);
  };
  double passed = kNever;
  each_thread([&](const Thread& thread) {
    if (thread.state == Thread::State::running)
      passed = std::min(passed, thread.left / rate(thread));
    if (thread.state == Thread::State::asleep) passed = std::min(passed, thread.until - now_);
  });
  passed = std::max(0.0, passed);
  now_ += passed;
  cpu_busy_ += busy * passed;
  for (const SimThread& worker : workers_)
    if (!worker.thread.idle()) workers_busy_ += passed;
  if (at_ == At::update) device_busy_ += passed;
  each_thread([&](Thread& thread) {
    if (thread.state == Thread::State::running) {
      thread.left -= passed * rate(thread);
      thread.ended = thread.left <= kNothing;
    } else if (thread.state == Thread::State::asleep) {
      thread.ended = thread.until <= now_ + kNothing;
    }
    if (thread.ended) thread.state = Thread::State::idle;
  });
}

ReplayOutput Simulation::run() {
  begin_load();
  while (step_ < total_) {
    open_batches();
    if (at_ == At::blocked && issued_ > step_ && missing_[step_ % slots_] == 0) {
      if (now_ > span_begin_) {  // the thread slept
        at_ = At::waking;
        trainer_.thread.sleep(now_ + in_.wake_s);
      } else {
        take();
      }
    }
    hand_out();
    advance();
    bool trainer = std::exchange(trainer_.thread.ended, false);
    for (Thread& helper : helpers_) trainer |= std::exchange(helper.ended, false);
    for (SimThread& reader : readers_)
      if (std::exchange(reader.thread.ended, false)) reader_ended(reader);
    for (SimThread& worker : workers_)
      if (std::exchange(worker.thread.ended, false)) worker_ended(worker);
    if (trainer) trainer_ended();
  }
  const auto steps = static_cast<double>(in_.steps);
  const double wall = std::max(now_ - counted_from_, kNothing);
  return {.images_per_s =
              in_.ranks * static_cast<double>(images_) / std::max(load_ + update_, kNothing),
          .load_s = load_ / steps,
          .update_s = update_ / steps,
          .other_s = other_ / steps,
          .cores_busy = cpu_busy_ / (wall * in_.cores),
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
    throw UsageError("a replay needs cores, samples, a batch, room for one ahead, and steps");
  return Simulation(input).run();
}

}  // namespace millrace::study
