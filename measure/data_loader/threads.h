// CPU time of threads that the watched script did not start itself: the pools of LibTorch, OpenMP,
// OpenCV and others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "measure/data_loader/usage.h"

namespace millrace::measure {

/// Times of a thread since it started, in ns.
struct ThreadTimes {
  std::int64_t id = 0;
  std::int64_t cpu = 0;
  std::int64_t delay = 0;  ///< ready to run without a core
};

/// Returns the threads of a process of this user, from /proc; none if it is gone. 0: this process.
/// Takes some 10 µs per thread. Those beyond the first 4096 are left out.
std::vector<ThreadTimes> threads_of(std::int64_t process);

/// Splits the CPU time of other threads of this process between next() and the loop's body, on some
/// steps. The clock of the process lags behind by a tick for threads that run; theirs do not.
class OtherThreads {
 public:
  /// CPU and wall time of the sampled steps, in ns.
  struct Sums {
    std::int64_t next_cpu = 0;
    std::int64_t next_wall = 0;
    std::int64_t body_cpu = 0;
    std::int64_t body_wall = 0;
  };

  /// Reads the clocks of these threads from now on, of at most 32 of them.
  void follow(std::vector<std::int64_t> threads);
  void next_begins(std::int64_t now) {
    if (!followed_.empty()) begin(now);
  }
  void next_ended(std::int64_t now) {
    if (in_next_) end_next(now);
  }
  /// Forgets the step under way: something else ran.
  void drop() { in_next_ = in_body_ = false; }
  const Sums& sums() const { return sums_; }

 private:
  void begin(std::int64_t now);
  void end_next(std::int64_t now);
  std::int64_t cpu();

  struct Followed {
    std::int64_t id = 0;
    std::int64_t cpu = 0;  ///< latest reading; a thread that has ended keeps it
  };
  std::vector<Followed> followed_;
  UsageSampler sampler_;
  Sums sums_;
  bool in_next_ = false, in_body_ = false;
  std::int64_t begin_ = 0, begin_cpu_ = 0, got_ = 0, got_cpu_ = 0;
};

}  // namespace millrace::measure
