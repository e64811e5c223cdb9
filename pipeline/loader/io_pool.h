// The threads that read samples ahead of the workers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "pipeline/loader/sample_range.h"
#include "pipeline/loader/stages.h"

namespace millrace::pipeline {

/// Threads that read the samples of ranges ahead of the workers, in the order in which they are
/// needed, so that workers do not wait for storage.
class IoPool {
 public:
  using Deliver = std::function<void(const SampleRange&)>;

  /// Starts the threads. At most `max_runs` ranges may be in the pool at once. `tracks` is the
  /// loader's, or null. `deliver` is called on the thread that has read a range's last sample.
  IoPool(int threads, std::size_t max_runs, Stages& stages, std::vector<Slot>& slots,
         measure::LoaderTracks* tracks, Deliver deliver);
  /// Waits for the threads, unless stop() ended them.
  ~IoPool();
  IoPool(const IoPool&) = delete;
  IoPool& operator=(const IoPool&) = delete;

  /// Appends a range to the queue. Returns false once stop() was called.
  bool add(const SampleRange& run);
  /// Ends the threads after their current read. Returns false if one is still blocked in a read at
  /// `deadline`: it is detached, and the pool must never be destroyed.
  bool stop(std::chrono::steady_clock::time_point deadline);
  /// Returns the number of ranges that were added but never delivered; valid once stop() has
  /// returned true.
  std::size_t undelivered() const { return undelivered_; }

  /// Returns what all threads have read, and the CPU time that they took.
  StageTotals totals() const;

 private:
  struct Job {
    SampleRange run;
    std::int64_t claimed = 0;                 ///< samples that a thread has taken
    std::atomic<std::int64_t> left{0};        ///< samples not read yet
    std::atomic<base::Clock::Ticks> busy{0};  ///< time of all threads on its samples
    std::atomic<base::Clock::Ticks> core_wait{0};
  };
  struct alignas(64) Thread {
    Reading reading;
    clockid_t clock{};
    std::thread thread;
  };

  /// Initialises everything but the threads.
  IoPool(int threads, std::size_t max_runs, Stages& stages, std::vector<Slot>& slots,
         Deliver deliver);
  void work(Thread& self);
  Job* claim(std::int64_t& place);
  void finished(Job& job);

  Stages& stages_;
  std::vector<Slot>& slots_;
  Deliver deliver_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::vector<Job> jobs_;  ///< a ring buffer
  std::size_t head_ = 0;   ///< first job with a sample that no thread has taken
  std::size_t tail_ = 0;
  std::size_t undelivered_ = 0;
  std::size_t alive_ = 0;
  std::int64_t ended_cpu_ns_ = 0;  ///< CPU time of threads that have ended
  std::atomic<bool> stop_{false};
  std::vector<Thread> threads_;
};

}  // namespace millrace::pipeline
