// Replay of a training loop behind torch's DataLoader (contract Prediction): predicts its rate with
// other settings. Pure arithmetic without clocks, threads or random numbers: equal input gives
// equal output.
//
// Batch i belongs to worker process i modulo their number, which makes its batches one after the
// other. `prefetch` batches per worker are outstanding; handing one out dispatches the next.
// Batches are handed out in order. A feeder thread of each worker sends what the worker has made,
// and next() rebuilds it. While it does, a third thread of the worker hands over the batch's shared
// memory, and waits for the interpreter's lock while the worker makes its next batch in Python.
// Where a thread other than the loop's calls next(), it puts the batches into a queue for the loop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace::predict {

/// Work of one thread: seconds blocked, then seconds on a core. Each of `threads` threads of a pool
/// takes the CPU seconds.
struct Demand {
  double cpu_s = 0;
  double blocked_s = 0;
  double threads = 1;

  double seconds() const { return cpu_s + blocked_s; }
  /// Returns it with its two times scaled.
  Demand scaled(double cpu, double blocked) const {
    return {cpu * cpu_s, blocked * blocked_s, threads};
  }
  bool operator==(const Demand&) const = default;
};

/// Returns the mean of demands of single threads. At least one.
Demand mean_of(std::span<const Demand> demands);

/// A loop and its demands.
struct DataLoaderInput {
  int workers = 0;
  int prefetch = 2;        ///< batches per worker
  std::int64_t batch = 1;  ///< samples
  int cores = 1;
  int ahead = 0;              ///< room of the queue between next() and the loop; 0: there is none
  std::vector<Demand> fetch;  ///< per batch, in turn: data set, transforms, collate
  double pause_s = 0;         ///< between two batches of a worker
  Demand send;                ///< per batch, in the worker's feeder thread
  Demand receive;             ///< per batch, in next(); waits while its worker makes another
  int tensors = 0;            ///< per batch, handed over one by one; 0: unknown
  double tensor_wait_s = 0;   ///< per batch, in next(): for threads of the worker, for its tensors
  Demand hand;                ///< per batch, in next(), also without workers
  Demand update;              ///< per step: the body of the loop
  int steps = 200;            ///< counted steps, rounded up to whole rounds over the workers
  bool spins = true;          ///< threads of a pool spin while they wait for each other

  bool operator==(const DataLoaderInput&) const = default;
};

struct DataLoaderOutput {
  double images_per_s = 0;
  double load_s = 0;    ///< per step: next(), or the loop's wait for the queue
  double update_s = 0;  ///< per step
  double busy_cores = 0;
};

/// Tensors of a batch whose number is not known.
constexpr int kUsualTensors = 2;

/// Returns how long a worker in Python pauses between two batches of so many tensors; 0: unknown.
/// Once a batch is made, the threads that send it and hand over the shared memory of each tensor
/// take the interpreter's lock. While a batch waits, the lock is free
/// (docs/results/2026-11-29-campaign.md, docs/results/2026-11-30-tensors.md).
double usual_pause(const Demand& fetch, int tensors);

/// Runs the simulation. Throws std::invalid_argument for input without cores, samples, steps,
/// demands that take time, or outstanding batches.
DataLoaderOutput replay(const DataLoaderInput& input);

/// Returns the input with that share of an update's CPU time, to 0.8%, with which the replay's
/// update takes `update_s` seconds. Threads of a pool compute while they wait for each other, and
/// what was measured beside workers holds that too. The share is 1 for one thread, and without
/// workers.
DataLoaderInput without_spinning(const DataLoaderInput& measured, double update_s);

}  // namespace millrace::predict
