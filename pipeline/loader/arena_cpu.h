// Measures the CPU time of a TBB arena's threads, work and idle spinning alike.
#pragma once

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "pipeline/loader/tsan_handover.h"

namespace millrace::pipeline {

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

}  // namespace millrace::pipeline
