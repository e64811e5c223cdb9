// A loader's threads: oneTBB arenas, and the threads that read ahead.
#pragma once

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "pipeline/loader/stages.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace millrace::pipeline {

// Annotates hand-overs for ThreadSanitizer that it cannot see, because they happen inside Debian's
// uninstrumented libtbb. Each annotation covers one direction (constructor to task, task to
// destructor). Data shared among workers is not annotated and stays checked. Other builds compile
// this to nothing.

/// Makes all that this thread has done visible to later callers of annotate_acquire() with the same
/// tag.
inline void annotate_release([[maybe_unused]] const void* tag) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(const_cast<void*>(tag));
#endif
}
inline void annotate_acquire([[maybe_unused]] const void* tag) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(const_cast<void*>(tag));
#endif
}

// Raises the number of threads that oneTBB may run. By default an arena of n threads gets no more
// than the machine has cores, and the limit of one loader would apply to a second one as well.

/// Allows `workers` more threads in the process as long as it lives. The limit only grows, and in
/// large steps: TBB applies the smallest of several limits, so a new one takes effect after the old
/// one is gone, and an arena that asks for its threads in between is refused with a warning.
class Parallelism {
 public:
  explicit Parallelism(int workers) : workers_(workers) { change(workers_); }
  ~Parallelism() { change(-workers_); }
  Parallelism(const Parallelism&) = delete;
  Parallelism& operator=(const Parallelism&) = delete;

 private:
  static constexpr int kLeast = 127;  ///< TBB reserves memory for that many anyway
  struct Limit {
    std::mutex mutex;
    int workers = 0;  ///< sum over all loaders
    int allowed = 0;  ///< at present
    std::unique_ptr<oneapi::tbb::global_control> control;
  };

  static void change(int by) {
    static auto* limit = new Limit;  // outlives every thread
    const std::lock_guard lock(limit->mutex);
    limit->workers += by;
    if (limit->workers <= limit->allowed) return;
    limit->allowed = std::max(kLeast, 2 * limit->workers);
    limit->control.reset();
    limit->control = std::make_unique<oneapi::tbb::global_control>(
        oneapi::tbb::global_control::max_allowed_parallelism,
        static_cast<std::size_t>(limit->allowed) + 1);
  }

  int workers_;
};

// Measures the CPU time of a TBB arena's threads, work and idle spinning alike.

/// Adds up the CPU time that threads spend while they belong to the arena.
class ArenaCpu final : public oneapi::tbb::task_scheduler_observer {
 public:
  explicit ArenaCpu(oneapi::tbb::task_arena& arena) : task_scheduler_observer(arena) {
    annotate_release(this);
    // observe() would do it, and an observer that fails there cannot be destroyed.
    arena.initialize();
    observe(true);
  }
  ~ArenaCpu() override {
    observe(false);
    const std::lock_guard lock(mutex_);  // after the last callback
  }
  void on_scheduler_entry(bool) override {
    annotate_acquire(this);
    const std::lock_guard lock(mutex_);
    clockid_t clock{};
    if (pthread_getcpuclockid(pthread_self(), &clock) != 0) return;
    const auto free = std::find_if(entries_.begin(), entries_.end(),
                                   [](const Entry& entry) { return !entry.inside; });
    Entry& entry = free == entries_.end() ? entries_.emplace_back() : *free;
    entry = {std::this_thread::get_id(), clock, base::Clock::thread_cpu_ns(), true};
  }
  void on_scheduler_exit(bool) override {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      if (!entry.inside || entry.thread != std::this_thread::get_id()) continue;
      left_ns_ += base::Clock::thread_cpu_ns() - entry.entry_ns;
      entry.inside = false;
    }
  }
  double seconds() const {
    const std::lock_guard lock(mutex_);
    std::int64_t ns = left_ns_;
    for (const Entry& entry : entries_) {
      timespec time{};
      if (!entry.inside || clock_gettime(entry.clock, &time) != 0) continue;
      ns += std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec - entry.entry_ns;
    }
    return static_cast<double>(ns) * 1e-9;
  }

 private:
  struct Entry {
    std::thread::id thread;
    clockid_t clock;
    std::int64_t entry_ns;
    bool inside;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  ///< entries are reused: threads come and go with every idle phase
  std::int64_t left_ns_ = 0;
};

/// Threads that read the samples of ranges ahead of the workers, in the order in which they are
/// needed, so that workers do not wait for storage.
class IoPool {
 public:
  using Deliver = std::function<void(const SampleRange&)>;

  /// Starts the threads. At most `max_runs` ranges may be in the pool at once. `tracks` is the
  /// loader's, or null. `deliver` is called on the thread that has read a range's last sample.
  IoPool(int threads, std::size_t max_runs, Stages& stages, std::vector<Slot>& slots,
         measure::LoaderTracks* tracks, Deliver deliver);
  /// Waits for the threads, unless stop() ended them.
  ~IoPool();
  IoPool(const IoPool&) = delete;
  IoPool& operator=(const IoPool&) = delete;

  /// Appends a range to the queue. Returns false once stop() was called.
  bool add(const SampleRange& run);
  /// Ends the threads after their current read. Returns false if one is still blocked in a read at
  /// `deadline`: it is detached, and the pool must never be destroyed.
  bool stop(std::chrono::steady_clock::time_point deadline);
  /// Returns the number of ranges that were added but never delivered; valid once stop() has
  /// returned true.
  std::size_t undelivered() const { return undelivered_; }

  /// Returns what all threads have read, and the CPU time that they took.
  StageTotals totals() const;

 private:
  struct Job {
    SampleRange run;
    std::int64_t claimed = 0;                 ///< samples that a thread has taken
    std::atomic<std::int64_t> left{0};        ///< samples not read yet
    std::atomic<base::Clock::Ticks> busy{0};  ///< time of all threads on its samples
    std::atomic<base::Clock::Ticks> core_wait{0};
  };
  struct alignas(64) Thread {
    Reading reading;
    clockid_t clock{};
    std::thread thread;
  };

  /// Initialises everything but the threads.
  IoPool(int threads, std::size_t max_runs, Stages& stages, std::vector<Slot>& slots,
         Deliver deliver);
  void work(Thread& self);
  Job* claim(std::int64_t& place);
  void finished(Job& job);

  Stages& stages_;
  std::vector<Slot>& slots_;
  Deliver deliver_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::vector<Job> jobs_;  ///< a ring buffer
  std::size_t head_ = 0;   ///< first job with a sample that no thread has taken
  std::size_t tail_ = 0;
  std::size_t undelivered_ = 0;
  std::size_t alive_ = 0;
  std::int64_t ended_cpu_ns_ = 0;  ///< CPU time of threads that have ended
  std::atomic<bool> stop_{false};
  std::vector<Thread> threads_;
};

}  // namespace millrace::pipeline
