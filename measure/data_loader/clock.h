// Clocks of a thread: wall time, CPU time, and time spent ready to run without a core.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "measure/data_loader/script_descriptor.h"

namespace millrace::measure {

/// A time that was not measured.
inline constexpr std::int64_t kUnknown = -1;

/// Wall time (CLOCK_MONOTONIC, which compares between processes), CPU and run-queue time, in ns.
struct Reading {
  std::int64_t wall = 0;
  std::int64_t cpu = 0;
  std::int64_t delay = 0;
};

std::int64_t wall_ns();

/// Reads the clocks of the thread that constructs it.
class ThreadClock {
 public:
  /// `schedstat` is the file of the thread's scheduling statistics. Without it delays are kUnknown.
  explicit ThreadClock(const std::string& schedstat);

  /// Returns the readings of now. The run-queue time lags behind by 10 µs at most: it grows only
  /// while the thread is off its core, so it is read only where the wall time has advanced more
  /// than the CPU time since it was read last.
  Reading read();
  /// Returns the CPU time alone.
  std::int64_t cpu() const;

 private:
  std::int64_t read_delay() const;

  ScriptDescriptor file_;
  bool any_ = false;  ///< latest_ was read
  Reading latest_;    ///< when the run-queue time was read
};

/// Time by kind, in ns: computing; blocked; ready, but without a core; unknown.
using Kinds = std::array<double, 4>;
inline constexpr std::array<const char*, 4> kKindNames{"cpu", "blocked", "cores", "unknown"};

/// Splits a stretch of time into its kinds. Without the run-queue time, what is no CPU time is
/// unknown.
Kinds kinds_of(std::int64_t wall, std::int64_t cpu, std::int64_t delay);

}  // namespace millrace::measure
