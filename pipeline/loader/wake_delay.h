// Delay between the end of a batch and the consumer that waits for it: time without a core.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace millrace::pipeline {

/// Reads the consumer's scheduler wait around those waits for a batch that may sleep.
class WakeDelay {
 public:
  void before_wait();
  /// Returns the time that the consumer, which waited for a batch made at `made`, had no core; 0 if
  /// it woke at once.
  base::Clock::Ticks after_wait(base::Clock::Ticks made);

 private:
  /// Last reading of the consumer's scheduler wait: when, and its value.
  base::Clock::Ticks read_at_ = 0;
  std::int64_t wait_ns_ = 0;
};

}  // namespace millrace::pipeline
