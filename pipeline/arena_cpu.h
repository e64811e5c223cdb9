// How much CPU time a TBB arena's threads spend, work and idle spinning alike.
#pragma once

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <pthread.h>

#include <ctime>
#include <map>
#include <mutex>
#include <thread>

#include "pipeline/clock.h"
#include "pipeline/handover.h"

namespace millrace {

/// CPU time that the arena's threads spend while they belong to it, work and spinning alike.
class ArenaCpu final : public oneapi::tbb::task_scheduler_observer {
 public:
  explicit ArenaCpu(oneapi::tbb::task_arena& arena) : task_scheduler_observer(arena) {
    hand_over(this);
    observe(true);
  }
  ~ArenaCpu() override {
    observe(false);
    const std::lock_guard lock(mutex_);  // behind the last callback
  }
  void on_scheduler_entry(bool) override {
    taken_over(this);
    const std::lock_guard lock(mutex_);
    clockid_t clock{};
    if (pthread_getcpuclockid(pthread_self(), &clock) == 0)
      inside_[std::this_thread::get_id()] = {clock, Clock::thread_cpu_ns()};
  }
  void on_scheduler_exit(bool) override {
    const std::lock_guard lock(mutex_);
    const auto found = inside_.find(std::this_thread::get_id());
    if (found == inside_.end()) return;
    left_ns_ += Clock::thread_cpu_ns() - found->second.entry_ns;
    inside_.erase(found);
  }
  double seconds() const {
    const std::lock_guard lock(mutex_);
    std::int64_t ns = left_ns_;
    for (const auto& [thread, entry] : inside_) {
      timespec time{};
      if (clock_gettime(entry.clock, &time) != 0) continue;
      ns += std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec - entry.entry_ns;
    }
    return static_cast<double>(ns) * 1e-9;
  }

 private:
  struct Entry {
    clockid_t clock;
    std::int64_t entry_ns;
  };
  mutable std::mutex mutex_;
  std::map<std::thread::id, Entry> inside_;
  std::int64_t left_ns_ = 0;
};

}  // namespace millrace
