#include "measure/data_loader/clock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>

namespace millrace::measure {
namespace {

constexpr std::int64_t kSlack = 10'000;  // ns off the core that leave the run-queue time as it is

std::int64_t now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return 1'000'000'000 * static_cast<std::int64_t>(time.tv_sec) + time.tv_nsec;
}

}  // namespace

std::int64_t wall_ns() { return now(CLOCK_MONOTONIC); }

ThreadClock::ThreadClock(const std::string& schedstat)
    : file_(open(schedstat.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_.number() >= 0 && read_delay() == kUnknown) file_.close_own();
}

std::int64_t ThreadClock::cpu() const { return now(CLOCK_THREAD_CPUTIME_ID); }

/// Returns the second of the file's numbers: CPU time, run-queue time, time slices.
std::int64_t ThreadClock::read_delay() const {
  std::array<char, 96> text{};
  const ssize_t size = pread(file_.number(), text.data(), text.size(), 0);
  if (size <= 0) return kUnknown;
  const char* const end = text.data() + size;
  const char* const begin = std::find(text.data(), const_cast<char*>(end), ' ');
  std::int64_t delay = kUnknown;
  if (begin != end) std::from_chars(begin + 1, end, delay);
  return delay;
}

Reading ThreadClock::read() {
  Reading reading{wall_ns(), cpu(), kUnknown};
  if (file_.number() < 0) return reading;
  if (any_ && (reading.wall - latest_.wall) - (reading.cpu - latest_.cpu) < kSlack) {
    reading.delay = latest_.delay;
    return reading;
  }
  // The thread may have lost its core since, which the other clocks must not miss.
  reading.delay = read_delay();
  reading.wall = wall_ns();
  reading.cpu = cpu();
  latest_ = reading;
  any_ = true;
  return reading;
}

Kinds kinds_of(std::int64_t wall, std::int64_t cpu, std::int64_t delay) {
  const auto whole = static_cast<double>(wall);
  if (cpu == kUnknown) return {0, 0, 0, whole};
  const double used = std::min(static_cast<double>(cpu), whole);
  const double rest = whole - used;
  if (delay == kUnknown) return {used, 0, 0, rest};
  const double waited = std::min(static_cast<double>(delay), rest);
  return {used, rest - waited, waited, 0};
}

}  // namespace millrace::measure
