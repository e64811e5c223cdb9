// Leases workers, and adds up their records.
#include "pipeline/loader/worker_pool.h"

#include <algorithm>

#include "base/clock.h"
#include "measure/batch_history.h"

namespace millrace::pipeline {

WorkerPool::WorkerPool(std::size_t threads, const Transform& transform, bool only_libjpeg)
    : workers_(threads) {
  for (Worker& worker : workers_) {
    worker.transform = transform.make_scratch();
    worker.decode.use_libjpeg(only_libjpeg);
  }
}

WorkerPool::Lease WorkerPool::lease() {
  for (;;) {
    for (Worker& worker : workers_) {
      if (!worker.leased.load(std::memory_order_relaxed) &&
          !worker.leased.exchange(true, std::memory_order_acquire))
        return Lease(&worker);
    }
  }
}

double WorkerPool::add_to(LoaderStats& stats) const {
  StageTotals* totals[measure::kStageCount] = {&stats.read, &stats.decode, &stats.augment};
  const double rate = base::Clock::seconds_per_tick();
  double stages_cpu = 0;
  for (const Worker& worker : workers_) {
    for (std::size_t i = 0; i < measure::kStageCount; ++i) {
      const StageRecord& record = worker.records[i];
      const double wall = static_cast<double>(record.ticks.get()) * rate;
      // CPU time per call comes from the ranges that measured it; the cost of reading that clock is
      // ignored.
      const auto calls = static_cast<double>(record.calls.get());
      const auto sampled = static_cast<double>(record.sampled_calls.get());
      const double cpu =
          sampled > 0 ? static_cast<double>(record.sampled_cpu_ns.get()) * 1e-9 * calls / sampled
                      : wall;
      totals[i]->calls += record.calls.get();
      totals[i]->bytes += record.bytes.get();
      totals[i]->wall_s += wall;
      totals[i]->cpu_s += std::min(wall, cpu);
      stages_cpu += std::min(wall, cpu);
    }
    stats.busy_s += base::Clock::seconds(worker.busy_ticks.get());
    stats.core_wait_s += base::Clock::seconds(worker.core_wait_ticks.get());
  }
  return stages_cpu;
}

}  // namespace millrace::pipeline
