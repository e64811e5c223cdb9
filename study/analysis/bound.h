// What holds a run back, in one word and one sentence: a pure function of its figures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/loader.h"
#include "study/analysis/wait_breakdown.h"

namespace millrace::study {

enum class Bottleneck { device, storage, decode, augment, cores, overhead };
std::string_view name_of(Bottleneck bound);

/// Of a run (or an epoch) without its first wait, all times in seconds.
struct BoundFigures {
  PartSeconds load{};        ///< WaitBreakdown::steady_seconds()
  double update_s = 0;       ///< 0: no device (bench)
  std::uint64_t images = 0;  ///< that went through in load and update
  int workers = 0;
  int io_threads = 0;
  int cores = 1;  ///< that the process may run on
  // What the workers did in all, for the same images:
  double read_s = 0;  ///< wall time of the stages, on I/O threads where there are any
  double decode_s = 0;
  double augment_s = 0;
  double busy_s = 0;       ///< wall time inside of work units
  double core_wait_s = 0;  ///< of it, ready to run without a core
  std::uint64_t read_bytes = 0;
};

/// Of a run whose loader did `loader` with `options`; the process may run on `cores`.
BoundFigures bound_figures(const WaitBreakdown& blame, const LoaderStats& loader,
                           const LoaderOptions& options, int cores, double update_s,
                           std::uint64_t images);

struct BoundVerdict {
  Bottleneck bound = Bottleneck::device;
  double share = 0;           ///< of load that the binding part has; of load + update, for a device
  double load_share = 0;      ///< of load + update
  double workers_needed = 0;  ///< so that load would vanish beside this device; 0: cannot be said
  std::string sentence;       ///< "decode-bound: 78% of load; 3.1 workers needed, you have 2"
};

/// Device, while load is less than a tenth of load + update (without workers, which take turns with
/// the device: less than half); else the largest part of load. Time in the queue counts for what
/// the workers were busy with meanwhile, and, as far as they were not, for overhead; so do
/// start-up, epoch boundary and handover.
BoundVerdict judge(const BoundFigures& figures);

}  // namespace millrace::study
