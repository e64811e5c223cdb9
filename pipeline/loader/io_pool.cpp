// The I/O threads and their queue.
#include "pipeline/loader/io_pool.h"

#include <pthread.h>

#include "base/clock.h"

namespace millrace::pipeline {

IoPool::IoPool(int threads, std::size_t max_runs, Stages& stages, std::vector<Slot>& slots,
               Deliver deliver)
    : stages_(stages),
      slots_(slots),
      deliver_(std::move(deliver)),
      jobs_(max_runs),
      threads_(static_cast<std::size_t>(threads)) {}

// If a thread cannot be started, the destructor ends those that were.
IoPool::IoPool(int threads, std::size_t max_runs, Stages& stages, std::vector<Slot>& slots,
               measure::LoaderTracks* tracks, Deliver deliver)
    : IoPool(threads, max_runs, stages, slots, std::move(deliver)) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    Thread& one = threads_[i];
    if (tracks != nullptr) one.reading.track = &tracks->io(i);
    one.thread = std::thread([this, &one] { work(one); });
    pthread_getcpuclockid(one.thread.native_handle(), &one.clock);
    ++alive_;
  }
}

IoPool::~IoPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
    wake_.notify_all();
  }
  for (Thread& one : threads_)
    if (one.thread.joinable()) one.thread.join();
}

bool IoPool::add(const SampleRange& run) {
  const std::lock_guard lock(mutex_);
  if (stop_.load(std::memory_order_relaxed)) return false;
  Job& job = jobs_[tail_++ % jobs_.size()];
  job.run = run;
  job.claimed = 0;
  job.left.store(run.count, std::memory_order_relaxed);
  job.busy.store(0, std::memory_order_relaxed);
  job.core_wait.store(0, std::memory_order_relaxed);
  ++undelivered_;
  run.count > 1 ? wake_.notify_all() : wake_.notify_one();
  return true;
}

IoPool::Job* IoPool::claim(std::int64_t& place) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stop_.load(std::memory_order_relaxed) || head_ != tail_; });
  if (stop_.load(std::memory_order_relaxed)) return nullptr;
  Job& job = jobs_[head_ % jobs_.size()];
  if (job.claimed == 0) slots_[job.run.slot].units[job.run.unit].fetch_begin = base::Clock::now();
  place = job.run.first + job.claimed++;
  if (job.claimed == job.run.count) ++head_;
  return &job;
}

void IoPool::finished(Job& job) {
  const SampleRange run = job.run;
  measure::RangeHistory& unit = slots_[run.slot].units[run.unit];
  unit.fetch_end = base::Clock::now();
  if (const base::Clock::Ticks busy = job.busy.load(std::memory_order_relaxed); busy > 0)
    unit.fetch_on_core = 1 - static_cast<float>(job.core_wait.load(std::memory_order_relaxed)) /
                                 static_cast<float>(busy);
  {
    const std::lock_guard lock(mutex_);
    --undelivered_;
  }
  deliver_(run);
}

void IoPool::work(Thread& self) {
  pthread_setname_np(pthread_self(), "read");  // for top and perf
  std::int64_t place = 0;
  while (Job* job = claim(place)) {
    stages_.fetch(slots_[job->run.slot], place, self.reading, stop_);
    job->busy.fetch_add(self.reading.busy, std::memory_order_relaxed);
    job->core_wait.fetch_add(self.reading.core_wait, std::memory_order_relaxed);
    if (job->left.fetch_sub(1, std::memory_order_acq_rel) == 1) finished(*job);
  }
  const std::lock_guard lock(mutex_);
  ended_cpu_ns_ += base::Clock::thread_cpu_ns();
  --alive_;
  ended_.notify_all();
}

bool IoPool::stop(std::chrono::steady_clock::time_point deadline) {
  {
    std::unique_lock lock(mutex_);
    stop_.store(true);
    wake_.notify_all();
    if (!ended_.wait_until(lock, deadline, [this] { return alive_ == 0; })) {
      for (Thread& one : threads_) one.thread.detach();
      return false;
    }
  }
  for (Thread& one : threads_) one.thread.join();
  return true;
}

StageTotals IoPool::totals() const {
  StageTotals totals;
  const double rate = base::Clock::seconds_per_tick();
  const std::lock_guard lock(mutex_);
  std::int64_t cpu_ns = ended_cpu_ns_;
  for (const Thread& one : threads_) {
    totals.calls += one.reading.record.calls.get();
    totals.bytes += one.reading.record.bytes.get();
    totals.wall_s += static_cast<double>(one.reading.record.ticks.get()) * rate;
    timespec time{};
    if (alive_ == threads_.size() && clock_gettime(one.clock, &time) == 0)
      cpu_ns += std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  totals.cpu_s = static_cast<double>(cpu_ns) * 1e-9;
  return totals;
}

}  // namespace millrace::pipeline
