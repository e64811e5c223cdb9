// The SIGBUS handler and the lock-free list of guarded ranges that it walks.
#include "base/mapped_file_guard.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace millrace::base {

/// An entry of a list that only grows, so that the handler can walk it without a lock. Entries are
/// reused.
struct GuardedRange {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};  ///< 0: not in use
  std::atomic<bool> damaged{false};
  GuardedRange* next = nullptr;
};

namespace {

std::atomic<GuardedRange*> g_ranges{nullptr};
std::atomic<std::uint64_t> g_faults{0};
std::uintptr_t g_page = 4096;
struct sigaction g_before {};

GuardedRange* range_of(std::uintptr_t address) {
  for (GuardedRange* range = g_ranges.load(std::memory_order_acquire); range != nullptr;
       range = range->next)
    if (address < range->end.load(std::memory_order_acquire) &&
        address >= range->begin.load(std::memory_order_acquire))
      return range;
  return nullptr;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (replace_lost_page(info)) return;
  if ((g_before.sa_flags & SA_SIGINFO) != 0 && g_before.sa_sigaction != nullptr) {
    g_before.sa_sigaction(signal, info, context);
  } else if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) {
    g_before.sa_handler(signal);
  } else {
    sigaction(SIGBUS, &g_before, nullptr);  // the access repeats and ends the process
  }
}

void install() {
  g_page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &g_before);
}

std::mutex& changing() {
  static auto* mutex = new std::mutex;  // outlives every thread
  return *mutex;
}

}  // namespace

bool replace_lost_page(const siginfo_t* info) {
  const auto page = reinterpret_cast<std::uintptr_t>(info->si_addr) & ~(g_page - 1);
  GuardedRange* range = info->si_code == BUS_ADRERR ? range_of(page) : nullptr;
  if (range == nullptr) return false;
  // Set the flag before the zeros become visible, so that their readers can know.
  range->damaged.store(true);
  g_faults.fetch_add(1);
  // Uses the bare system call: the library's wrapper is not guaranteed to be async-signal-safe.
  const long status =
      syscall(SYS_mmap, page, g_page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return static_cast<std::uintptr_t>(status) == page;
}

GuardedRange* guard(const void* memory, std::size_t size) {
  const std::lock_guard lock(changing());
  static const bool installed = (install(), true);
  static_cast<void>(installed);
  GuardedRange* range = g_ranges.load(std::memory_order_relaxed);
  while (range != nullptr && range->end.load(std::memory_order_relaxed) != 0) range = range->next;
  if (range == nullptr) {
    range = new GuardedRange;
    range->next = g_ranges.load(std::memory_order_relaxed);
    g_ranges.store(range, std::memory_order_release);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  range->damaged.store(false, std::memory_order_relaxed);
  range->begin.store(begin, std::memory_order_release);
  range->end.store(begin + size, std::memory_order_release);
  return range;
}

void unguard(GuardedRange* range) {
  const std::lock_guard lock(changing());
  range->end.store(0, std::memory_order_release);
}

bool is_damaged(const GuardedRange* range) {
  return range->damaged.load(std::memory_order_acquire);
}

std::uint64_t mapped_faults() { return g_faults.load(std::memory_order_acquire); }

}  // namespace millrace::base
