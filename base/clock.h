// Time stamps cheap enough for the hot path: the processor's time-stamp counter if it runs at a
// constant rate, otherwise the system's steady clock (cheap-measurement contract).
#pragma once

#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "base/private_api.h"

namespace millrace::base {

class Clock {
 public:
  using Ticks = std::int64_t;

  static Ticks now() {
#if defined(__x86_64__)
    if (uses_tsc_) return static_cast<Ticks>(__rdtsc());
#endif
    return steady_ns();
  }
  /// Returns the seconds per tick. The first call measures them against the steady clock over the
  /// time since the program's start (at least 2 ms, for which it waits); later calls return the
  /// same number.
  MILLRACE_PRIVATE_API static double seconds_per_tick();
  static double seconds(Ticks ticks) { return static_cast<double>(ticks) * seconds_per_tick(); }
  static Ticks ticks(double seconds) { return static_cast<Ticks>(seconds / seconds_per_tick()); }
  /// Readings of both clocks at nearly the same moment.
  struct Reading {
    Ticks ticks;
    std::int64_t steady_ns;
  };
  /// Reads both clocks several times and returns the readings that were interrupted least, so that
  /// a thread that loses its core in between does no harm. Takes about 1 µs.
  MILLRACE_PRIVATE_API static Reading read_both();
  /// Converts a time of the steady clock that is near now. Takes about 1 µs.
  MILLRACE_PRIVATE_API static Ticks ticks_at(std::int64_t steady_ns);

  static std::int64_t steady_ns() { return read(CLOCK_MONOTONIC); }
  /// Returns the CPU time of the calling thread; costs about 0.2 µs.
  static std::int64_t thread_cpu_ns() { return read(CLOCK_THREAD_CPUTIME_ID); }
  /// Returns the CPU time of the process, all threads included.
  static std::int64_t process_cpu_ns() { return read(CLOCK_PROCESS_CPUTIME_ID); }

 private:
  static std::int64_t read(clockid_t id) {
    timespec time;
    clock_gettime(id, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  MILLRACE_PRIVATE_API static const bool uses_tsc_;
  static const Reading origin_;
  static double measured_rate();
};

}  // namespace millrace::base
