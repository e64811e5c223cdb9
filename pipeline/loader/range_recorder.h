// Measures the stages of a sample range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "measure/batch_history.h"
#include "measure/scheduler_wait.h"
#include "pipeline/loader/worker.h"

namespace millrace::pipeline {

/// Adds up a range's stages on the stack, and enters them in the worker's records at its end.
class RangeRecorder {
 public:
  RangeRecorder(Worker& worker, measure::RangeHistory& unit, bool on)
      : worker_(worker), unit_(unit), on_(on) {
    if (!on_) return;
    last_ = base::Clock::now();
    unit_.begin = last_;
    unit_.begin_wait = measure::SchedulerWait::mine().begin(last_);
    sampled_ = worker_.runs % kCpuSampling == 0;
    if (sampled_) cpu_ = base::Clock::thread_cpu_ns();
  }
  RangeRecorder(const RangeRecorder&) = delete;
  RangeRecorder& operator=(const RangeRecorder&) = delete;
  ~RangeRecorder() {
    if (!on_) return;
    for (std::size_t i = 0; i < measure::kStageCount; ++i) {
      worker_.records[i].calls += sums_[i].calls;
      worker_.records[i].ticks += sums_[i].ticks;
      worker_.records[i].bytes += sums_[i].bytes;
      unit_.stages[i] = sums_[i].ticks;
      unit_.bytes[i] = sums_[i].bytes;
      if (!sampled_) continue;
      worker_.records[i].sampled_calls += sums_[i].calls;
      worker_.records[i].sampled_cpu_ns += sums_[i].cpu_ns;
    }
    unit_.end = last_;
    const measure::SchedulerWait::Found found =
        measure::SchedulerWait::mine().end(unit_.begin, unit_.end);
    unit_.core_wait = found.core_wait;
    unit_.cpu_ns = found.cpu_ns;
    // Reads may sleep: they have a stage of their own.
    if (found.faulted)
      unit_.fault_wait = std::max<base::Clock::Ticks>(
          0, found.blocked - unit_.stages[static_cast<std::size_t>(measure::Stage::read)]);
    worker_.busy_ticks += unit_.end - unit_.begin;
    worker_.core_wait_ticks += unit_.core_wait;
    ++worker_.runs;
  }
  /// Assigns the time since the last call to `stage`.
  void end(measure::Stage stage, std::uint64_t calls, std::uint64_t bytes) {
    if (!on_) return;
    const base::Clock::Ticks now = base::Clock::now();
    Sum& sum = sums_[static_cast<std::size_t>(stage)];
    sum.ticks += now - last_;
    sum.calls += calls;
    sum.bytes += bytes;
    last_ = now;
    ended_ = stage;
    if (!sampled_) return;  // a stage that waits for storage takes less CPU time than wall time
    const std::int64_t cpu_now = base::Clock::thread_cpu_ns();
    sum.cpu_ns += cpu_now - cpu_;
    cpu_ = cpu_now;
  }

  /// Assigns the time since the last call to the stage in which a sample failed.
  void fail(bool encoded, bool fetched) {
    const bool reading = ended_ == measure::Stage::augment && !fetched;
    end(reading   ? measure::Stage::read
        : encoded ? measure::Stage::decode
                  : measure::Stage::augment,
        0, 0);
    ended_ = measure::Stage::augment;
  }

 private:
  /// Number of ranges per reading of the thread's CPU clock, which costs twenty times a time stamp.
  static constexpr std::uint64_t kCpuSampling = 32;
  struct Sum {
    std::uint64_t calls = 0;
    base::Clock::Ticks ticks = 0;
    std::uint64_t bytes = 0;
    std::int64_t cpu_ns = 0;
  };

  Worker& worker_;
  measure::RangeHistory& unit_;
  const bool on_;
  bool sampled_ = false;
  std::int64_t cpu_ = 0;
  base::Clock::Ticks last_ = 0;
  measure::Stage ended_ = measure::Stage::augment;  ///< stage that ended last
  Sum sums_[measure::kStageCount];
};

}  // namespace millrace::pipeline
