// Threads that read the samples of runs ahead of the workers, in the order in which they are
// needed: a worker then never waits for storage.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "pipeline/loader/stages.h"

namespace millrace::pipeline {

class IoPool {
 public:
  using Deliver = std::function<void(const SampleRange&)>;

  /// `max_runs`: as many may be in the pool at once. `tracks`: of the loader, or null. `deliver`
  /// is called on the thread that has read a run's last sample.
  IoPool(int threads, std::size_t max_runs, Stages& stages, std::vector<Slot>& slots,
         LoaderTracks* tracks, Deliver deliver);
  /// Waits for threads that stop() was not called for.
  ~IoPool();
  IoPool(const IoPool&) = delete;
  IoPool& operator=(const IoPool&) = delete;

  /// Puts a run at the end of the queue; false once stop() was called.
  bool add(const SampleRange& run);
  /// Ends the threads within the reads that they are at. False: one is still blocked in a read at
  /// `deadline`; it is left to itself, and the pool must never be destroyed.
  bool stop(std::chrono::steady_clock::time_point deadline);
  /// Runs that were added but never delivered, once stop() returned true.
  std::size_t undelivered() const { return undelivered_; }

  /// What all threads have read, and the CPU time that they took for it.
  StageTotals totals() const;

 private:
  struct Job {
    SampleRange run;
    std::int64_t claimed = 0;                 ///< samples that a thread has taken
    std::atomic<std::int64_t> left{0};        ///< samples that are not read yet
    std::atomic<base::Clock::Ticks> busy{0};  ///< all threads' time with them
    std::atomic<base::Clock::Ticks> core_wait{0};
  };
  struct alignas(64) Thread {
    Reading reading;
    clockid_t clock{};
    std::thread thread;
  };

  /// Without its threads.
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
  std::vector<Job> jobs_;  ///< a ring
  std::size_t head_ = 0;   ///< first job with a sample that nobody has taken
  std::size_t tail_ = 0;
  std::size_t undelivered_ = 0;
  std::size_t alive_ = 0;
  std::int64_t ended_cpu_ns_ = 0;  ///< of threads that have ended
  std::atomic<bool> stop_{false};
  std::vector<Thread> threads_;
};

}  // namespace millrace::pipeline
