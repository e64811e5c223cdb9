#include "pipeline/slots.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace millrace {
namespace {

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr,
          0);
}

}  // namespace

void Doorbell::wait(std::atomic<std::uint32_t>& ready, const std::atomic<bool>& stopped,
                    const std::atomic<bool>* outer) {
  // A short look before sleeping: a sleep and a wake-up cost some 20 µs.
  for (int i = 0; i < 64; ++i) {
    if (ready.load(std::memory_order_acquire) == 1) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  sleeping_.store(true);
  while (ready.load() != 1 && !stopped.load() && (outer == nullptr || !outer->load())) {
    // The time-out is for `outer`, and for an interrupt() that falls between check and sleep.
    const timespec most{0, 100'000'000};
    futex(ready, FUTEX_WAIT_PRIVATE, 0, &most);
  }
  sleeping_.store(false);
}

void Doorbell::ring(std::atomic<std::uint32_t>& ready) {
  ready.store(1);
  if (sleeping_.load()) futex(ready, FUTEX_WAKE_PRIVATE, 1, nullptr);
}

void Doorbell::ring_all(std::vector<Slot>& slots) {
  for (Slot& slot : slots) futex(slot.ready, FUTEX_WAKE_PRIVATE, 1, nullptr);
}

}  // namespace millrace
