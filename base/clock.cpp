// Measures the rate of the time-stamp counter.
#include "base/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace millrace::base {
namespace {

bool tsc_is_invariant() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#else
  return false;
#endif
}

}  // namespace

const bool Clock::uses_tsc_ = tsc_is_invariant();
const Clock::Reading Clock::origin_ = Clock::read_both();

Clock::Reading Clock::read_both() {
  Reading best{};
  Ticks shortest = INT64_MAX;
  for (int i = 0; i < 16; ++i) {
    const Ticks before = now();
    const std::int64_t ns = steady_ns();
    const Ticks after = now();
    if (after - before >= shortest) continue;
    shortest = after - before;
    best = {before + (after - before) / 2, ns};
  }
  return best;
}

Clock::Ticks Clock::ticks_at(std::int64_t steady_ns) {
  const Reading near = read_both();
  return near.ticks + ticks(static_cast<double>(steady_ns - near.steady_ns) * 1e-9);
}

double Clock::measured_rate() {
  if (!uses_tsc_) return 1e-9;
  constexpr std::int64_t kShortest = 2'000'000;  // reading errors of 50 ns are then 3e-5
  const std::int64_t passed = steady_ns() - origin_.steady_ns;
  if (passed < kShortest) {
    const timespec wait{0, kShortest - passed};
    nanosleep(&wait, nullptr);
  }
  const Reading end = read_both();
  return static_cast<double>(end.steady_ns - origin_.steady_ns) * 1e-9 /
         static_cast<double>(end.ticks - origin_.ticks);
}

double Clock::seconds_per_tick() {
  static const double rate = measured_rate();
  return rate;
}

}  // namespace millrace::base
