// Limits of a run: each resource's ceiling, and the bottleneck in one word and one sentence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "measure/wait_breakdown.h"
#include "millrace/loader.h"
#include "predict/loader_replay.h"
#include "predict/rules.h"

namespace millrace::study {

// Ceilings: the rate in images per second that each resource alone would allow, and which of them
// is the bound.

/// CPU seconds per sample of each stage, on an otherwise idle core.
struct StageDemand {
  double read_s = 0, decode_s = 0, augment_s = 0;
  double machinery_s = 0;  ///< CPU time of the flow graph around the stages
  double total() const { return read_s + decode_s + augment_s + machinery_s; }
};

struct Ceiling {
  std::string name;
  double images_per_s = 0;
};

/// Returns the ceilings in this order: device, storage, decode, augment (each stage alone on the
/// workers' cores), loader (all stages together), cores (shared by the loader, the device and the
/// trainer's own work). Resources that limit nothing are left out. Rates count every rank.
std::vector<Ceiling> ceilings(const predict::ReplayInput& input, const StageDemand& demand);

/// Returns how many worker threads would keep the device busy if each had a core.
double workers_needed(const predict::ReplayInput& input, const StageDemand& demand);

struct LowestCeiling {
  /// One of device, storage, decode, augment, cores, overhead.
  std::string name;
  double images_per_s = 0;  ///< the ceiling's rate
  std::string sentence;     ///< "decode-bound: ..."
  /// Other resources whose ceilings are within kCrossing of it, nearest first. A stage that demands
  /// nearly as much as the one named has the same rate.
  std::vector<Ceiling> near;
};

/// Ceilings that differ by less, as a share of the lower one, are a crossing: measurements do not
/// tell which of them binds.
inline constexpr double kCrossing = 0.05;

/// Returns the lowest ceiling. If the loader is too slow, names the stage that demands most. Names
/// `cores` if the device's own CPU work leaves the loader too little, and `overhead` if the graph
/// and the trainer's records cost more than the stages. Without workers load and update take turns,
/// and the longer of the two is the bound.
LowestCeiling lowest_ceiling(const predict::ReplayInput& input, const StageDemand& demand);

// Names what limits a run (its bottleneck) in one word and one sentence. A pure function of the
// run's figures.

enum class Bottleneck {
  device,
  storage,
  decode,
  augment,
  cores,
  overhead,
  host,
  others,    ///< programs other than the run have the cores
  too_short  ///< no verdict: too few steps
};
std::string_view name_of(Bottleneck bound);

/// The timeline of a device that works beside the host, in seconds, without evaluations,
/// checkpoints, the first wait and, but for wait_s, the steps that set something up.
struct DeviceFigures {
  bool asynchronous = false;      ///< train.clock=async: steps are queued
  double busy_s = 0;              ///< in steps; may contain waits for the host (an upper bound)
  double gap_load_s = 0;          ///< between steps, while the host waited for a batch
  double gap_host_s = 0;          ///< between steps, while the host copied, submitted or recorded
  double wait_s = 0;              ///< the host waited for the device, in all steps
  double setup_s = 0;             ///< part of the run's update in steps that set something up
  double setup_wait_s = 0;        ///< part of wait_s in these steps
  std::uint64_t submissions = 0;  ///< steps submitted behind another
  std::uint64_t starved = 0;      ///< those before which the device had run dry
};

/// 90th percentile of updates over their median from which their time varies.
inline constexpr double kVaries = 2;
/// Share of checkpoints in their and the steps' time from which a verdict names them. Loading goes
/// on meanwhile, so that a loader that is too slow may keep no step waiting.
inline constexpr double kNotedCheckpoints = 0.1;

/// Figures of a run or an epoch, without its first wait. All times are in seconds.
struct BoundFigures {
  measure::PartSeconds load{};  ///< WaitBreakdown::steady_seconds()
  double update_s = 0;          ///< 0: there is no device (bench)
  std::uint64_t images = 0;     ///< number processed during load and update
  int workers = 0;
  int io_threads = 0;
  int cores = 1;                            ///< cores that the process may run on
  std::optional<std::uint64_t> steps = {};  ///< nothing: unknown, and enough
  int update_threads = 1;                   ///< CPU threads of an update, the trainer's included
  std::optional<double> others = {};        ///< share of the machine that other programs took, 0..1
  double update_spread = 1;                 ///< 90th percentile of updates over their median
  double checkpoint_s = 0;                  ///< the trainer waited for checkpoints
  // Totals of the workers, for these images:
  double read_s = 0;  ///< wall time of the stages; on the I/O threads if the run has any
  double decode_s = 0;
  double augment_s = 0;
  double busy_s = 0;       ///< wall time inside work units
  double core_wait_s = 0;  ///< part of busy_s: ready to run, but without a core
  std::uint64_t read_bytes = 0;
  std::optional<DeviceFigures> device = {};  ///< empty on the CPU, and for runs without a device
};

/// Collects the figures of a run whose loader did `loader` with `options`. The process may run on
/// `cores`.
BoundFigures bound_figures(const measure::WaitBreakdown& blame, const LoaderStats& loader,
                           const LoaderOptions& options, int cores, double update_s,
                           std::uint64_t images);

struct BoundVerdict {
  Bottleneck bound = Bottleneck::device;
  /// The bound's share of load; of load + update for a device. Of the device's time, where it has
  /// a timeline: the steps for a device, the gaps that are not load for the host.
  double share = 0;
  double load_share = 0;  ///< load's share of load + update
  /// Workers that would hide load behind this device; 0: unknown, NaN: too few steps.
  double workers_needed = 0;
  std::string sentence;  ///< "decode-bound: 78% of load; 3.1 workers needed, you have 2"
};

/// Returns `too_short` for fewer than predict::kStepsForVerdict steps. Returns `others` where other
/// programs took more than predict::kMaxOthers of the machine and either threads that waited for a
/// core are the largest part of load that binds, or updates vary (kVaries) while load does not
/// bind.
///
/// Otherwise returns `device` if load is less than a tenth of load + update. Without workers load
/// and update take turns, and the limit is a half. An asynchronous device is judged by its own
/// timeline instead: load is then the gaps while the host waited for a batch, as a share of gaps
/// and steps, and the limit is a tenth, because load and update overlap. If load is less than that,
/// the host hardly waited for the device, and the device had gaps or ran dry, returns `host`: the
/// device waits for the host to submit work. Otherwise returns the resource with the largest share
/// of load. Queue time is charged to the stages that kept the workers busy meanwhile, and to
/// overhead as far as the workers were idle. Start-up, epoch boundary and handover count as
/// overhead.
BoundVerdict classify(const BoundFigures& figures);

}  // namespace millrace::study
