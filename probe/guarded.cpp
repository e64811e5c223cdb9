// Guard pages, and the signal handler that reports accesses to them.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>

#include "probe/probe.h"

namespace millrace::probe {
namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

/// State for the signal handler: plain memory, no locks.
struct Watched {
  std::atomic<bool> used{false};
  std::atomic<const char*> what{nullptr};
  std::atomic<std::uintptr_t> pages, end, data;
  std::atomic<std::size_t> size;
};
std::array<Watched, 256> watched;
std::atomic<int> line_to{-1};

int watch(const char* what, std::uint8_t* pages, std::size_t mapped, std::uint8_t* data,
          std::size_t size) {
  for (std::size_t i = 0; i < watched.size(); ++i) {
    if (watched[i].used.exchange(true)) continue;
    watched[i].pages = reinterpret_cast<std::uintptr_t>(pages);
    watched[i].end = reinterpret_cast<std::uintptr_t>(pages) + mapped;
    watched[i].data = reinterpret_cast<std::uintptr_t>(data);
    watched[i].size = size;
    watched[i].what = what;
    return static_cast<int>(i);
  }
  return -1;  // an access is then reported as a crash
}

/// Returns "writes", "reads", or "touches" if the processor does not tell.
const char* access(void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWrite = 2;
  return (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWrite) != 0 ? "writes"
                                                                                       : "reads";
#else
  static_cast<void>(context);
  return "touches";
#endif
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Watched& memory : watched) {
    const char* what = memory.what.load();
    if (!memory.used.load() || what == nullptr || at < memory.pages || at >= memory.end) continue;
    const std::uintptr_t begin = memory.data;
    const std::uintptr_t end = begin + memory.size;
    char line[256];
    int length = 0;
    if (at < begin)
      length = std::snprintf(line, sizeof line, "failed\tit %s %zu bytes before %s\n",
                             access(context), static_cast<std::size_t>(begin - at), what);
    else if (at >= end)
      length = std::snprintf(line, sizeof line, "failed\tit %s past %s: %zu bytes behind its end\n",
                             access(context), what, static_cast<std::size_t>(at - end + 1));
    else
      length = std::snprintf(line, sizeof line,
                             "failed\tit writes to %s, which is only to be read\n", what);
    if (write(line_to.load(), line, static_cast<std::size_t>(length)) == length) _exit(0);
  }
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(signal, &plain, nullptr);  // the fault recurs and ends the process
}

}  // namespace

Guarded::Guarded(const char* what, std::size_t size, Near near, std::uint8_t fill,
                 std::size_t align)
    : what_(what), size_(size), fill_(fill) {
  const std::size_t page = page_size();
  const std::size_t inner = std::max<std::size_t>(1, (size + align - 1 + page) / page) * page;
  mapped_ = inner + 2 * page;
  void* memory = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  pages_ = static_cast<std::uint8_t*>(memory);
  std::uint8_t* const begin = pages_ + page;
  closed_ = line_to.load() < 0 ? 0 : page;
  std::uint8_t* const open = pages_ + closed_;
  std::uint8_t* const end = pages_ + mapped_ - closed_;
  if (mprotect(open, static_cast<std::size_t>(end - open), PROT_READ | PROT_WRITE) != 0)
    throw std::bad_alloc();
  data_ = near == Near::before ? begin : begin + (inner - size) / align * align;
  for (std::uint8_t* p = open; p < end; ++p) *p = pattern(p);
  std::memset(data_, fill, size);
  watched_ = watch(what, pages_, mapped_, data_, size);
}

Guarded::~Guarded() {
  if (watched_ >= 0) {
    watched[static_cast<std::size_t>(watched_)].what = nullptr;
    watched[static_cast<std::size_t>(watched_)].used = false;
  }
  munmap(pages_, mapped_);
}

std::uint8_t Guarded::pattern(const std::uint8_t* at) const {
  return static_cast<std::uint8_t>(0xA5 ^ fill_ ^ (at - pages_) * 31);
}

void Guarded::protect() {
  if (closed_ > 0) mprotect(pages_ + closed_, mapped_ - 2 * closed_, PROT_READ);
}

void Guarded::check() const {
  const std::uint8_t* const end = pages_ + mapped_ - closed_;
  for (const std::uint8_t* p = pages_ + closed_; p < end; ++p) {
    if (p == data_) p += size_;
    if (p == end || *p == pattern(p)) continue;
    if (p < data_) throw Defect(fmt::format("it writes {} bytes before {}", data_ - p, what_));
    throw Defect(
        fmt::format("it writes past {}: {} bytes behind its end", what_, p - data_ - size_ + 1));
  }
}

void report_touches(int descriptor) {
  line_to = descriptor;
  // Alternate signal stack, for plugins that exhaust the thread's stack.
  static std::array<char, 65536> stack;
  stack_t other{};
  other.ss_sp = stack.data();
  other.ss_size = stack.size();
  sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS}) sigaction(signal, &action, nullptr);
}

}  // namespace millrace::probe
