// The event that hands a finished slot to the consumer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "pipeline/loader/slot.h"

namespace millrace::pipeline {

/// Lets one consumer wait for a slot's `ready`, which many workers set.
class ReadyEvent {
 public:
  /// Returns once `ready` is 1, one of the flags is set, or `poll` returns true. `outer` may be
  /// null and `poll` empty; both are polled every 100 ms, because nothing wakes the consumer for
  /// them.
  void wait(std::atomic<std::uint32_t>& ready, const std::atomic<bool>& stopped,
            const std::atomic<bool>* outer, const std::function<bool()>& poll);
  /// Sets `ready` and wakes the consumer if it sleeps.
  void set(std::atomic<std::uint32_t>& ready);
  /// Wakes the consumer, whatever it waits for.
  void wake(std::vector<Slot>& slots);

 private:
  /// Waits for `ready` without a sleep, briefly and only where that has saved sleeps before.
  bool spin(const std::atomic<std::uint32_t>& ready);

  std::atomic<bool> sleeping_{false};
  // Only the consumer uses the next two.
  double in_time_ = 0;  ///< share of the last spins that saved a sleep
  unsigned waits_ = 0;  ///< for which spinning was not worth it
};

}  // namespace millrace::pipeline
