// Replay of a training run with millrace's loader (contract Prediction): predicts the loader's
// threads, the storage and the device under a given configuration from the demands of each sample
// and step. Pure arithmetic without clocks, threads or random numbers: equal input gives equal
// output.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::predict {

/// Storage that reads come from, with the rules of the emulated disk
/// (pipeline/readers/storage.h). 0 means no limit.
struct ReplayStorage {
  double bytes_per_s = 0;
  double latency_s = 0;
  double requests_per_s = 0;

  bool limited() const { return bytes_per_s > 0 || latency_s > 0 || requests_per_s > 0; }
};

/// A configuration and its demands. Times are seconds; CPU times are those of an otherwise idle
/// core.
struct ReplayInput {
  int cores = 2;

  int workers = 2;  ///< 0: the trainer makes its own batches
  int io_threads = 0;
  int prefetch = 4;              ///< batches made ahead; workers add one slot
  std::int64_t batch = 64;       ///< samples per step
  std::uint64_t samples = 6400;  ///< samples per epoch; the last batch may be short
  bool drop_last = false;
  std::int64_t grain = 0;  ///< samples per unit; 0: as the loader chooses from the measured cost

  double sample_s = 0;          ///< a worker's CPU time per sample, without reading
  double read_s = 0;            ///< CPU time per read, on an I/O thread if there are any
  double batch_s = 0;           ///< CPU time per batch that is independent of its samples
  std::vector<double> weights;  ///< each sample's demand over the mean; empty: all equal
  std::vector<double> bytes;    ///< each sample's bytes; empty: nothing is read
  ReplayStorage storage;

  double update_s = 0;      ///< device time per step
  int update_threads = 0;   ///< CPU threads that an update occupies; 0: the device takes no CPU
  bool frees_early = true;  ///< the slot is free when the update begins, not when it ends
  double take_s = 0;        ///< CPU time to take a batch from the workers; part of load
  double host_s = 0;        ///< the trainer's own CPU time per step: records, progress
  double wake_s = 0;        ///< delay from a batch's end until a sleeping trainer continues

  /// Slowdown of CPU work when every core is busy, relative to an idle machine: shared caches,
  /// memory and clocks. Interpolated in between by the number of busy cores.
  double crowding_stage = 1;
  double crowding_update = 1;

  /// Processes like this one on the host, in lockstep. They share the cores and the storage; each
  /// has its own device.
  int ranks = 1;

  std::uint64_t warm_up = 32;  ///< steps before the counted ones
  std::uint64_t steps = 200;   ///< counted steps
};

struct ReplayOutput {
  double images_per_s = 0;  ///< of all ranks over load + update, as in a run's summary
  double load_s = 0;        ///< per step
  double update_s = 0;      ///< per step
  double other_s = 0;       ///< per step
  /// Busy share of the time, 0..1: of all cores, all workers, the device, and the storage's bus or
  /// request clock, whichever is busier.
  double cores_busy = 0, workers_busy = 0, device_busy = 0, storage_busy = 0;
};

/// Runs the simulation. Throws std::invalid_argument for impossible input (no cores, no samples).
ReplayOutput replay(const ReplayInput& input);

}  // namespace millrace::predict
