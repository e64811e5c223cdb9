// Records of how long a thread took for the stages of samples.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace millrace::pipeline {

/// A counter with one writer at a time that other threads may read, without locks or locked
/// instructions.
template <class Number>
class Counter {
 public:
  void operator+=(Number more) { value_.store(get() + more, std::memory_order_relaxed); }
  Number get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Number> value_{0};
};

/// Records of one stage on one thread.
struct StageRecord {
  Counter<std::uint64_t> calls;
  Counter<base::Clock::Ticks> ticks;
  Counter<std::uint64_t> bytes;
  Counter<std::uint64_t> sampled_calls;  ///< calls in ranges whose CPU time was measured
  Counter<std::int64_t> sampled_cpu_ns;
};

}  // namespace millrace::pipeline
