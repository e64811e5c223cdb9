// Reads the clocks behind SchedulerWait: thread CPU time, schedstat and page faults.
#include "measure/scheduler_wait.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace millrace::measure {

namespace {

/// Shortest idle phase before which all clocks are read. They take about 1.5 µs together, less than
/// 1% of it.
constexpr double kShortestLull = 150e-6;
/// Age up to which earlier readings describe the work that begins.
constexpr double kFresh = 2e-3;
/// Shortest work whose CPU time is read. That takes 0.2 to 0.4 µs, which would be more than 0.4% of
/// shorter work.
constexpr double kShortestWork = 100e-6;
/// Time off a core that counts. Shorter times, or smaller parts of the work, are within the clocks'
/// differences.
constexpr double kShortestWait = 20e-6;
constexpr base::Clock::Ticks kSmallestPart = 64;

struct Limits {
  base::Clock::Ticks lull = base::Clock::ticks(kShortestLull);
  base::Clock::Ticks fresh = base::Clock::ticks(kFresh);
  base::Clock::Ticks work = base::Clock::ticks(kShortestWork);
  base::Clock::Ticks wait = base::Clock::ticks(kShortestWait);
};

const Limits& limits() {
  static const Limits limits;
  return limits;
}

base::Clock::Ticks ticks_of_ns(std::int64_t ns) {
  return base::Clock::ticks(static_cast<double>(ns) * 1e-9);
}

/// Returns the page faults of the calling thread that had to wait for storage.
std::int64_t major_faults() {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_majflt : 0;
}

}  // namespace

SchedulerWait& SchedulerWait::mine() {
  static thread_local SchedulerWait watch;
  return watch;
}

SchedulerWait::SchedulerWait() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

SchedulerWait::~SchedulerWait() {
  if (file_ >= 0) close(file_);
}

std::int64_t SchedulerWait::core_wait_ns() const {
  // "ns on a core, ns waiting for one, times it got one"
  char text[96];
  const ssize_t size = file_ >= 0 ? pread(file_, text, sizeof text - 1, 0) : 0;
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* const second = std::strchr(text, ' ');
  return second != nullptr ? std::strtoll(second, nullptr, 10) : 0;
}

void SchedulerWait::read(base::Clock::Ticks now) {
  read_at_ = cpu_at_ = now;
  core_wait_ns_ = core_wait_ns();
  faults_ = major_faults();
  cpu_ns_ = base::Clock::thread_cpu_ns();
}

base::Clock::Ticks SchedulerWait::begin(base::Clock::Ticks now) {
  const base::Clock::Ticks lull = now - ended_;
  if (lull < limits().lull && now - read_at_ < limits().fresh) return 0;
  const std::int64_t before = core_wait_ns_;
  read(now);
  return lull < limits().lull ? 0 : std::min(lull, ticks_of_ns(core_wait_ns_ - before));
}

SchedulerWait::Found SchedulerWait::end(base::Clock::Ticks begin, base::Clock::Ticks now) {
  Found found;
  ended_ = now;
  const base::Clock::Ticks wall = now - begin;
  if (wall < limits().work) return found;
  const base::Clock::Ticks since = cpu_at_;
  const std::int64_t cpu_before = cpu_ns_;
  cpu_ns_ = base::Clock::thread_cpu_ns();
  cpu_at_ = now;
  const base::Clock::Ticks cpu = ticks_of_ns(cpu_ns_ - cpu_before);
  const base::Clock::Ticks off = std::clamp<base::Clock::Ticks>(now - since - cpu, 0, wall);
  found.cpu_ns = static_cast<std::int64_t>(base::Clock::seconds(std::min(cpu, wall)) * 1e9);
  if (off < limits().wait || off < wall / kSmallestPart) return found;
  const std::int64_t waited_before = core_wait_ns_;
  const std::int64_t faults_before = faults_;
  read(now);
  found.core_wait = std::min(off, ticks_of_ns(core_wait_ns_ - waited_before));
  found.blocked = off - found.core_wait;
  found.faulted = faults_ != faults_before;
  return found;
}

}  // namespace millrace::measure
