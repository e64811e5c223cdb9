#include "predict/shared_cores.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::predict {
namespace {

/// Ends that lie closer to each other, in seconds, are the same moment (less than one cycle).
constexpr double kSameMoment = 1e-12;

}  // namespace

double progress(double threads, double wanted, int cores, bool spins) {
  if (wanted <= cores) return 1;
  if (threads == 1 || !spins) return cores / wanted;
  const int pool = static_cast<int>(std::min<double>(threads, cores));
  double all = 1;
  for (int i = 0; i < pool; ++i) all *= (cores - i) / (wanted - i);
  return std::max(1 / kMaxSlowdown, all);
}

SharedCores::SharedCores(const Cores& cores, std::size_t threads)
    : cores_(cores), idle_(threads, 1) {}

bool SharedCores::ends_later(const Stretch& a, const Stretch& b) { return a.end > b.end; }

void SharedCores::push(std::vector<Stretch>& heap, const Stretch& one) {
  heap.push_back(one);
  std::push_heap(heap.begin(), heap.end(), ends_later);
}

SharedCores::Stretch SharedCores::pop(std::vector<Stretch>& heap) {
  std::pop_heap(heap.begin(), heap.end(), ends_later);
  const Stretch one = heap.back();
  heap.pop_back();
  return one;
}

SharedCores::Pace& SharedCores::pace_of(Work work, double pool) {
  for (Pace& one : paces_)
    if (one.work == work && one.pool == pool) return one;
  return paces_.emplace_back(Pace{.work = work, .pool = pool});
}

void SharedCores::run(std::size_t thread, Work work, double cpu_s, double pool) {
  idle_[thread] = 0;
  const std::uint64_t number = started_++;
  if (cpu_s <= 0) {
    due_.push_back({0, number, thread});
    return;
  }
  Pace& pace = pace_of(work, pool);
  push(pace.stretches, {pace.served + cpu_s, number, thread});
  wanted_ += cores_.ranks * pool;
}

void SharedCores::sleep_until(std::size_t thread, double time) {
  idle_[thread] = 0;
  const std::uint64_t number = started_++;
  if (time <= now_)
    due_.push_back({0, number, thread});
  else
    push(asleep_, {time, number, thread});
}

void SharedCores::wake(std::size_t thread) {
  const auto found = std::find_if(asleep_.begin(), asleep_.end(),
                                  [thread](const Stretch& one) { return one.thread == thread; });
  if (found == asleep_.end()) return;
  asleep_.erase(found);
  std::make_heap(asleep_.begin(), asleep_.end(), ends_later);
  due_.push_back({0, started_++, thread});
}

double SharedCores::speed_of(const Pace& pace) const {
  const double busy = std::min<double>(wanted_, cores_.count);
  const double crowd = busy > 1 ? (busy - 1) / (cores_.count - 1) : 0;
  const double slow = 1 + (cores_.crowding[static_cast<std::size_t>(pace.work)] - 1) * crowd;
  return progress(pace.pool, wanted_, cores_.count, cores_.spins) / slow;
}

std::span<const std::size_t> SharedCores::advance() {
  ended_.clear();
  if (!due_.empty()) {
    ended_.swap(due_);
  } else {
    double passed = std::numeric_limits<double>::infinity();
    if (!asleep_.empty()) passed = asleep_.front().end - now_;
    for (Pace& pace : paces_) {
      if (pace.stretches.empty()) continue;
      pace.speed = speed_of(pace);
      passed = std::min(passed, (pace.stretches.front().end - pace.served) / pace.speed);
    }
    if (std::isinf(passed)) return {};
    passed = std::max(0.0, passed);
    now_ += passed;
    busy_s_ += std::min<double>(wanted_, cores_.count) * passed;
    while (!asleep_.empty() && asleep_.front().end <= now_ + kSameMoment)
      ended_.push_back(pop(asleep_));
    for (Pace& pace : paces_) {
      if (pace.stretches.empty()) continue;
      pace.served += passed * pace.speed;
      while (!pace.stretches.empty() && pace.stretches.front().end <= pace.served + kSameMoment) {
        ended_.push_back(pop(pace.stretches));
        wanted_ -= cores_.ranks * pace.pool;
      }
    }
    std::sort(ended_.begin(), ended_.end(),
              [](const Stretch& a, const Stretch& b) { return a.number < b.number; });
  }
  threads_.clear();
  for (const Stretch& one : ended_) {
    idle_[one.thread] = 1;
    threads_.push_back(one.thread);
  }
  return threads_;
}

}  // namespace millrace::predict
