// Waits for slots with a futex.
#include "pipeline/loader/ready_event.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace millrace::pipeline {

namespace {

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr,
          0);
}

}  // namespace

bool ReadyEvent::spin(const std::atomic<std::uint32_t>& ready) {
  constexpr int kPauses = 64;      // 1 to 3 µs
  constexpr double kWorth = 0.25;  // of the spins: a sleep and its wake-up cost some 10 µs of CPU
  constexpr unsigned kEvery = 16;  // waits between two attempts while it is not worth it
  if (ready.load(std::memory_order_acquire) == 1) return true;
  if (in_time_ < kWorth && ++waits_ % kEvery != 0) return false;
  bool set = false;
  for (int i = 0; i < kPauses && !set; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    set = ready.load(std::memory_order_acquire) == 1;
  }
  in_time_ += ((set ? 1.0 : 0.0) - in_time_) / 8;
  return set;
}

void ReadyEvent::wait(std::atomic<std::uint32_t>& ready, const std::atomic<bool>& stopped,
                      const std::atomic<bool>* outer, const std::function<bool()>& poll) {
  if (spin(ready)) return;
  sleeping_.store(true);
  while (ready.load() != 1 && !stopped.load() && (outer == nullptr || !outer->load())) {
    // The time-out serves `outer`, and an interrupt() that falls between check and sleep.
    const timespec most{0, 100'000'000};
    futex(ready, FUTEX_WAIT_PRIVATE, 0, &most);
    if (poll && ready.load() != 1 && poll()) break;
  }
  sleeping_.store(false);
}

void ReadyEvent::set(std::atomic<std::uint32_t>& ready) {
  ready.store(1);
  if (sleeping_.load()) futex(ready, FUTEX_WAKE_PRIVATE, 1, nullptr);
}

void ReadyEvent::wake(std::vector<Slot>& slots) {
  for (Slot& slot : slots) futex(slot.ready, FUTEX_WAKE_PRIVATE, 1, nullptr);
}

}  // namespace millrace::pipeline
