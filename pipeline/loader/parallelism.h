// Raises the number of threads that oneTBB may run. By default an arena of n threads gets no more
// than the machine has cores, and the limit of one loader would apply to a second one as well.
#pragma once

#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>

namespace millrace::pipeline {

/// Allows `workers` more threads in the process as long as it lives. The limit only grows, and in
/// large steps: TBB applies the smallest of several limits, so a new one takes effect after the old
/// one is gone, and an arena that asks for its threads in between is refused with a warning.
class Parallelism {
 public:
  explicit Parallelism(int workers) : workers_(workers) { change(workers_); }
  ~Parallelism() { change(-workers_); }
  Parallelism(const Parallelism&) = delete;
  Parallelism& operator=(const Parallelism&) = delete;

 private:
  static constexpr int kLeast = 127;  ///< TBB reserves memory for that many anyway
  struct Limit {
    std::mutex mutex;
    int workers = 0;  ///< sum over all loaders
    int allowed = 0;  ///< at present
    std::unique_ptr<oneapi::tbb::global_control> control;
  };

  static void change(int by) {
    static auto* limit = new Limit;  // outlives every thread
    const std::lock_guard lock(limit->mutex);
    limit->workers += by;
    if (limit->workers <= limit->allowed) return;
    limit->allowed = std::max(kLeast, 2 * limit->workers);
    limit->control.reset();
    limit->control = std::make_unique<oneapi::tbb::global_control>(
        oneapi::tbb::global_control::max_allowed_parallelism,
        static_cast<std::size_t>(limit->allowed) + 1);
  }

  int workers_;
};

}  // namespace millrace::pipeline
