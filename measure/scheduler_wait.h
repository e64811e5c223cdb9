// Time during which a thread was ready to run and had no core.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace millrace::measure {

/// Measures how long a thread was ready to run without a core, at a cost below 1%
/// (cheap-measurement contract). Reads clocks only for work that is long enough, and the expensive
/// ones only if time is missing.
class SchedulerWait {
 public:
  /// Returns the calling thread's instance. It is thread_local because waiting is a property of the
  /// thread, unlike the memory that it works with.
  static SchedulerWait& mine();
  SchedulerWait(const SchedulerWait&) = delete;
  SchedulerWait& operator=(const SchedulerWait&) = delete;

  /// Measurements of one piece of work.
  struct Found {
    base::Clock::Ticks core_wait = 0;  ///< ready to run, without a core; 0 below 20 µs
    /// Off a core for other reasons: asleep, or waiting for storage.
    base::Clock::Ticks blocked = 0;
    bool faulted = false;      ///< it waited for a file's pages, among others
    std::int64_t cpu_ns = -1;  ///< CPU time; -1: not measured, the work was shorter than 100 µs
  };

  /// Begins a piece of work at `now`. Returns how long the thread had been ready without a core up
  /// to then, or 0 if it came straight from other work.
  base::Clock::Ticks begin(base::Clock::Ticks now);
  /// Ends the piece of work that began at `begin`.
  Found end(base::Clock::Ticks begin, base::Clock::Ticks now);

  /// Returns how long the thread has been ready to run without running since it started, in ns, or
  /// 0 if the system does not say (/proc/thread-self/schedstat). Costs about 1 µs.
  std::int64_t core_wait_ns() const;

 private:
  SchedulerWait();
  ~SchedulerWait();
  void read(base::Clock::Ticks now);

  int file_;
  base::Clock::Ticks ended_ = 0;    ///< end of the last piece of work
  base::Clock::Ticks read_at_ = 0;  ///< last reading of all clocks
  base::Clock::Ticks cpu_at_ = 0;   ///< last reading of the CPU clock
  std::int64_t cpu_ns_ = 0;
  std::int64_t core_wait_ns_ = 0;
  std::int64_t faults_ = 0;
};

}  // namespace millrace::measure
