// Computes deadlines of emulated reads and sleeps until them.
#include "pipeline/readers/storage_model.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/clock.h"

namespace millrace::pipeline {
namespace {

/// Shortest wait that is slept. After a shorter one the thread runs ahead of its lane, and its next
/// wait is longer.
constexpr std::int64_t kShortestSleep = 100'000;
/// Longest sleep at a time, so that a stop is seen within it.
constexpr std::int64_t kLongestSleep = 20'000'000;
/// Largest lateness that is compensated; a thread may have been stopped by a debugger.
constexpr std::int64_t kMaxLate = 10'000'000;

void sleep_until(std::int64_t ns) {
  const timespec time{static_cast<std::time_t>(ns / 1'000'000'000),
                      static_cast<long>(ns % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);  // a signal only ends it early
}

}  // namespace

std::int64_t StorageModel::finish_ns(std::int64_t arrival_ns, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (origin_ns_ < 0) origin_ns_ = arrival_ns;
  double time = static_cast<double>(arrival_ns - origin_ns_);
  if (options_.requests_per_s > 0) {
    time = std::max(time, next_request_);
    next_request_ = time + 1e9 / options_.requests_per_s;
    time = next_request_;
  }
  time += 1e9 * options_.latency_s;
  if (options_.bytes_per_s > 0) {
    time = std::max(time, bus_free_) + 1e9 * static_cast<double>(bytes) / options_.bytes_per_s;
    bus_free_ = time;
  }
  const std::int64_t finish = origin_ns_ + static_cast<std::int64_t>(std::llround(time));
  if (track_ != nullptr) track_->add({arrival_ns, finish, bytes});
  return finish;
}

void StorageModel::serve(std::int64_t begin_ns, std::uint64_t bytes, Lane& lane,
                         const std::atomic<bool>& stop) {
  const std::int64_t deadline = finish_ns(begin_ns - std::min(lane.late_ns, kMaxLate), bytes);
  std::int64_t now = base::Clock::steady_ns();
  while (deadline - now >= kShortestSleep && !stop.load(std::memory_order_relaxed)) {
    sleep_until(std::min(deadline, now + kLongestSleep));
    now = base::Clock::steady_ns();
  }
  lane.late_ns = now - deadline;
}

}  // namespace millrace::pipeline
