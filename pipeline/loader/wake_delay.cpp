// Reads the consumer's scheduler wait as rarely as it can.
#include "pipeline/loader/wake_delay.h"

#include <utility>

#include "measure/scheduler_wait.h"

namespace millrace::pipeline {
namespace {

/// Time within which a caller has its batch if it gets a core when it is woken.
constexpr double kPromptWake = 50e-6;
/// Age up to which the scheduler wait is not read again; reading it takes about 1 µs.
constexpr double kValid = 1e-3;

}  // namespace

void WakeDelay::before_wait() {
  const base::Clock::Ticks now = base::Clock::now();
  if (now - read_at_ <= base::Clock::ticks(kValid)) return;
  read_at_ = now;
  wait_ns_ = measure::SchedulerWait::mine().core_wait_ns();
}

base::Clock::Ticks WakeDelay::after_wait(base::Clock::Ticks made) {
  const base::Clock::Ticks now = base::Clock::now();
  if (now - made <= base::Clock::ticks(kPromptWake)) return 0;
  const std::int64_t before =
      std::exchange(wait_ns_, measure::SchedulerWait::mine().core_wait_ns());
  read_at_ = now;
  return base::Clock::ticks(static_cast<double>(wait_ns_ - before) * 1e-9);
}

}  // namespace millrace::pipeline
