// A discrete-event replay of a training run: what the loader's threads, the storage and the device
// would do under a given configuration, from what each sample and each step demands of them.
// Arithmetic alone: no clock, no thread, no random number, so the same input gives the same output.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::study {

/// The storage that reads come from, with the rules of the emulated disk
/// (pipeline/readers/storage_model.h). Each 0: no limit.
struct ReplayStorage {
  double bytes_per_s = 0;
  double latency_s = 0;
  double requests_per_s = 0;

  bool limited() const { return bytes_per_s > 0 || latency_s > 0 || requests_per_s > 0; }
};

/// A configuration and its demands. Times are seconds; CPU times are those of a core that has
/// nothing else to do.
struct ReplayInput {
  int cores = 2;

  int workers = 2;  ///< 0: the trainer makes its batches itself
  int io_threads = 0;
  int prefetch = 4;              ///< batches made ahead; one slot more with workers
  std::int64_t batch = 64;       ///< samples a step
  std::uint64_t samples = 6400;  ///< of an epoch; its last batch may be short
  bool drop_last = false;
  std::int64_t grain = 0;  ///< samples a unit; 0: as the loader chooses from the measured cost

  double sample_s = 0;  ///< CPU time of a worker a sample, without reading it
  double read_s = 0;    ///< CPU time of reading a sample, on an I/O thread where there are any
  double batch_s = 0;   ///< CPU time a batch that no sample causes: tickets, hand-over
  std::vector<double> weights;  ///< samples' demands over their mean; empty: all alike
  std::vector<double> bytes;    ///< samples' sizes; empty: storage is asked for nothing
  ReplayStorage storage;

  double update_s = 0;      ///< a step on the device
  int update_threads = 0;   ///< CPU threads that it keeps busy; 0: a device that takes no CPU
  bool frees_early = true;  ///< the slot is free when the update begins, not when it ends
  double take_s = 0;        ///< the trainer's CPU time to get a batch from the workers, in load
  double host_s = 0;        ///< the trainer's own CPU time a step: records, progress
  double wake_s = 0;        ///< from a batch's end until a trainer that slept goes on

  /// How much longer CPU work takes when every core is busy, over what it takes alone: shared
  /// caches, memory and clocks. In between it is interpolated by the number of busy cores.
  double crowding_stage = 1;
  double crowding_update = 1;

  /// Processes like this one on the host, in step: they share the cores and the storage, and each
  /// has a device of its own.
  int ranks = 1;

  std::uint64_t warm_up = 32;  ///< steps before the ones that count
  std::uint64_t steps = 200;   ///< steps that count
};

struct ReplayOutput {
  double images_per_s = 0;  ///< of all ranks, over load + update, as a run's summary counts it
  double load_s = 0;        ///< a step
  double update_s = 0;      ///< a step
  double other_s = 0;       ///< a step
  /// Busy part of the time, 0..1: of all cores, all workers, the device, the storage's bus or
  /// request clock (whichever is busier).
  double cores_busy = 0, workers_busy = 0, device_busy = 0, storage_busy = 0;
};

/// Runs the model. Throws UsageError for an input that no run could have (no cores, no samples).
ReplayOutput replay(const ReplayInput& input);

}  // namespace millrace::study
