// Allocates slots, and lets the consumer wait for them with a futex.
#include "pipeline/loader/slots.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace millrace::pipeline {
namespace {

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr,
          0);
}

/// Requests pages of 2 MiB, so that the kernel clears a slot in a few steps instead of thousands,
/// and writes miss fewer address translations. Covers whole large pages only, so memory use does
/// not grow.
void use_large_pages(std::uint8_t* memory, std::size_t size) {
  constexpr std::size_t kLarge = 2 << 20;
  const std::size_t before = (kLarge - reinterpret_cast<std::uintptr_t>(memory) % kLarge) % kLarge;
  if (size < before + kLarge) return;
  madvise(memory + before, (size - before) / kLarge * kLarge, MADV_HUGEPAGE);  // best effort
}

}  // namespace

void Slot::reserve(const std::shared_ptr<SlotMemory>& from, std::size_t count,
                   std::size_t sample_bytes, std::size_t classes) {
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const std::size_t labels_at = aligned(count * sample_bytes + kTailSlack);
  const std::size_t rows_at = labels_at + aligned(count * sizeof(std::int64_t));
  memory = SlotBlock(from, rows_at + count * classes * sizeof(float));
  samples = memory.data();
  if (from == nullptr) use_large_pages(samples, memory.size());
  labels = {reinterpret_cast<std::int64_t*>(samples + labels_at), count};
  probabilities = {reinterpret_cast<float*>(samples + rows_at), count * classes};
}

void ReadyEvent::wait(std::atomic<std::uint32_t>& ready, const std::atomic<bool>& stopped,
                      const std::atomic<bool>* outer) {
  // Spin briefly before sleeping: a sleep and a wake-up cost some 20 µs.
  for (int i = 0; i < 64; ++i) {
    if (ready.load(std::memory_order_acquire) == 1) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  sleeping_.store(true);
  while (ready.load() != 1 && !stopped.load() && (outer == nullptr || !outer->load())) {
    // The time-out serves `outer`, and an interrupt() that falls between check and sleep.
    const timespec most{0, 100'000'000};
    futex(ready, FUTEX_WAIT_PRIVATE, 0, &most);
  }
  sleeping_.store(false);
}

void ReadyEvent::ring(std::atomic<std::uint32_t>& ready) {
  ready.store(1);
  if (sleeping_.load()) futex(ready, FUTEX_WAKE_PRIVATE, 1, nullptr);
}

void ReadyEvent::ring_all(std::vector<Slot>& slots) {
  for (Slot& slot : slots) futex(slot.ready, FUTEX_WAKE_PRIVATE, 1, nullptr);
}

}  // namespace millrace::pipeline
