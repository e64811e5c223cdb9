// When to try a failed request again: jittered exponential waits, a deadline per object, and a
// budget per host.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/private_api.h"

namespace millrace::pipeline {

/// Time as retries see it, so that tests need not wait.
class MILLRACE_PRIVATE_API RetryClock {
 public:
  virtual ~RetryClock();
  virtual double now_s() = 0;
  /// Sleeps, or returns soon after `stop` is set; it may be null.
  virtual void sleep(double seconds, const std::atomic<bool>* stop) = 0;

  /// Returns the steady clock.
  static RetryClock& system();
};

struct RetryOptions {
  double deadline_s = 120;     ///< longest time without progress
  double first_wait_s = 0.25;  ///< doubled with every failure
  double longest_wait_s = 10;
  std::uint64_t seed = 0;  ///< of the jitter; ranks differ in it
};

/// Failures of one host in a row, over all threads: a host that answers nothing is left alone.
class HostBudget {
 public:
  static constexpr int kMost = 256;
  void succeeded() { failures_.store(0, std::memory_order_relaxed); }
  /// Returns false once the budget is spent.
  bool failed() { return failures_.fetch_add(1, std::memory_order_relaxed) < kMost; }

 private:
  std::atomic<int> failures_{0};
};

/// Failures of one object.
class MILLRACE_PRIVATE_API Retry {
 public:
  Retry(const RetryOptions& options, RetryClock& clock, std::uint64_t object);

  /// Returns how long to wait before the next attempt: half of the exponential wait and a random
  /// part of the other half, at least `asked_s` (Retry-After). Returns none if that would pass the
  /// deadline.
  std::optional<double> failed(std::optional<double> asked_s);
  /// Begins the deadline and the waits anew: bytes came.
  void progressed();
  int attempts() const { return attempts_; }

 private:
  const RetryOptions options_;
  RetryClock& clock_;
  std::uint64_t draw_;
  double since_s_;
  int failures_ = 0;  ///< since the last progress
  int attempts_ = 0;
};

}  // namespace millrace::pipeline
