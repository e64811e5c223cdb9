// Raises the number of threads that oneTBB may run. By default an arena of n threads gets no more
// than the machine has cores, and the limit of one loader would apply to a second one as well.
#pragma once

#include <oneapi/tbb/global_control.h>

#include <memory>
#include <mutex>

namespace millrace::base {

/// Allows `workers` more threads in the process as long as it lives.
class Parallelism {
 public:
  explicit Parallelism(int workers) : workers_(workers) { change(workers_); }
  ~Parallelism() { change(-workers_); }
  Parallelism(const Parallelism&) = delete;
  Parallelism& operator=(const Parallelism&) = delete;

 private:
  struct Limit {
    std::mutex mutex;
    int workers = 0;  ///< sum over all loaders
    std::unique_ptr<oneapi::tbb::global_control> control;
  };

  static void change(int by) {
    static auto* limit = new Limit;  // outlives every thread
    const std::lock_guard lock(limit->mutex);
    limit->workers += by;
    limit->control.reset();  // TBB applies the smallest of several limits
    if (limit->workers == 0) return;
    limit->control = std::make_unique<oneapi::tbb::global_control>(
        oneapi::tbb::global_control::max_allowed_parallelism,
        static_cast<std::size_t>(limit->workers) + 1);
  }

  int workers_;
};

}  // namespace millrace::base
