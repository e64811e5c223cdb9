// The workers of a loader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/loader.h"
#include "millrace/transform.h"
#include "pipeline/loader/worker.h"

namespace millrace::pipeline {

/// Leases workers to the threads that process ranges. It has as many workers as there are threads,
/// so one is always free.
class WorkerPool {
 public:
  struct Return {
    void operator()(Worker* worker) const {
      worker->leased.store(false, std::memory_order_release);
    }
  };
  using Lease = std::unique_ptr<Worker, Return>;

  WorkerPool(std::size_t threads, const Transform& transform, bool only_libjpeg);

  Lease lease();
  std::uint32_t number_of(const Worker& worker) const {
    return static_cast<std::uint32_t>(&worker - workers_.data());
  }
  /// Adds the workers' records. Returns the CPU time of all stages in seconds.
  double add_to(LoaderStats& stats) const;

 private:
  std::vector<Worker> workers_;
};

}  // namespace millrace::pipeline
