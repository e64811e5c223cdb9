// Tells for how long a thread's work was kept from a core, at a cost that stays below 1%: clocks
// are only asked for work that is long enough, and the dear ones only where time is missing.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace millrace::pipeline {

class SchedulerWait {
 public:
  /// The calling thread's. (What a thread waits for is a property of the thread, unlike the memory
  /// that it works with.)
  static SchedulerWait& mine();
  SchedulerWait(const SchedulerWait&) = delete;
  SchedulerWait& operator=(const SchedulerWait&) = delete;

  /// What was found out about a piece of work.
  struct Found {
    base::Clock::Ticks core_wait = 0;  ///< ready to run, without a core; 0 below 20 µs
    base::Clock::Ticks blocked = 0;    ///< else not on a core: asleep, or waiting for storage
    bool faulted = false;              ///< for pages of a file, among others
    std::int64_t cpu_ns = -1;  ///< CPU time; -1: not taken, the work was shorter than 100 µs
  };

  /// Work begins at `now`. Returns for how long, up to then, the thread had no core although it was
  /// ready; 0 where it came straight from other work.
  base::Clock::Ticks begin(base::Clock::Ticks now);
  /// It has ended, after it began at `begin`.
  Found end(base::Clock::Ticks begin, base::Clock::Ticks now);

  /// How long the thread has been ready to run without running, in ns, ever; 0 where the system
  /// doesn't say (/proc/thread-self/schedstat). Costs about 1 µs.
  std::int64_t core_wait_ns() const;

 private:
  SchedulerWait();
  ~SchedulerWait();
  void read(base::Clock::Ticks now);

  int file_;
  base::Clock::Ticks ended_ = 0;    ///< the last piece of work
  base::Clock::Ticks read_at_ = 0;  ///< all of the clocks
  base::Clock::Ticks cpu_at_ = 0;   ///< the CPU clock
  std::int64_t cpu_ns_ = 0;
  std::int64_t core_wait_ns_ = 0;
  std::int64_t faults_ = 0;
};

}  // namespace millrace::pipeline
