// Names what limits a run (its bottleneck) in one word and one sentence. A pure function of the
// run's figures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/loader.h"
#include "study/analysis/wait_breakdown.h"

namespace millrace::study {

enum class Bottleneck { device, storage, decode, augment, cores, overhead };
std::string_view name_of(Bottleneck bound);

/// Figures of a run or an epoch, without its first wait. All times are in seconds.
struct BoundFigures {
  PartSeconds load{};        ///< WaitBreakdown::steady_seconds()
  double update_s = 0;       ///< 0: there is no device (bench)
  std::uint64_t images = 0;  ///< number processed during load and update
  int workers = 0;
  int io_threads = 0;
  int cores = 1;  ///< cores that the process may run on
  // Totals of the workers, for these images:
  double read_s = 0;  ///< wall time of the stages; on the I/O threads if the run has any
  double decode_s = 0;
  double augment_s = 0;
  double busy_s = 0;       ///< wall time inside work units
  double core_wait_s = 0;  ///< part of busy_s: ready to run, but without a core
  std::uint64_t read_bytes = 0;
};

/// Collects the figures of a run whose loader did `loader` with `options`. The process may run on
/// `cores`.
BoundFigures bound_figures(const WaitBreakdown& blame, const LoaderStats& loader,
                           const LoaderOptions& options, int cores, double update_s,
                           std::uint64_t images);

struct BoundVerdict {
  Bottleneck bound = Bottleneck::device;
  double share = 0;           ///< the bound's share of load; of load + update for a device
  double load_share = 0;      ///< load's share of load + update
  double workers_needed = 0;  ///< workers that would hide load behind this device; 0: unknown
  std::string sentence;       ///< "decode-bound: 78% of load; 3.1 workers needed, you have 2"
};

/// Returns `device` if load is less than a tenth of load + update. Without workers load and update
/// take turns, and the limit is a half. Otherwise returns the resource with the largest share of
/// load. Queue time is charged to the stages that kept the workers busy meanwhile, and to overhead
/// as far as the workers were idle. Start-up, epoch boundary and handover count as overhead.
BoundVerdict judge(const BoundFigures& figures);

}  // namespace millrace::study
