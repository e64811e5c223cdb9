// The loader: a TBB flow graph (or, with no workers, the caller's own thread) that turns a data
// set into batches, in order and ahead of time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/limits.h"
#include "millrace/reader.h"
#include "millrace/transform.h"

namespace millrace::pipeline {
struct BatchHistory;
class LoaderCore;
class LoaderTracks;
class SlotMemory;
class StorageModel;
}  // namespace millrace::pipeline

namespace millrace {

/// `loader.on_error`: what becomes of a sample that cannot be read, decoded or augmented.
enum class OnError {
  fail,     ///< next() throws
  skip,     ///< the rank's slice is one sample shorter; the other ranks don't hear of it
  replace,  ///< another sample, chosen by a keyed draw, takes its place (8 attempts, then skip)
};

/// `loader.mode`: what next() has to do for a batch.
enum class LoaderMode {
  normal,
  synthetic,  ///< nothing: slots hold noise from the start, and no sample is ever read
  cached,     ///< nothing once every slot was filled: their batches come again and again
};

/// One failed sample, for quarantine.jsonl.
struct Failure {
  std::uint32_t epoch;
  std::uint64_t position;  ///< in the epoch
  std::uint64_t sample;    ///< index in the data set
  std::string name;        ///< path, or file and place
  std::string reason;
};

/// `loader.shuffle`.
struct Shuffle {
  enum class Kind { none, global, window } kind = Kind::global;
  std::uint64_t window = 0;  ///< samples a window: windows and the samples in each are shuffled

  /// Reads "global", "none" or "window:N"; throws UsageError.
  static Shuffle parse(const std::string& text);
};

struct LoaderOptions {
  LoaderMode mode = LoaderMode::normal;
  int workers = 2;          ///< threads; 0: batches are made inside next()
  int io_threads = 0;       ///< threads that read ahead of them; 0, or no workers: none
  std::int64_t batch = 64;  ///< samples a batch, of all ranks together
  int rank = 0;             ///< takes its slice (rank_slice.h) of every batch
  int world = 1;            ///< ranks that share a batch
  int prefetch = 4;         ///< batches made ahead, in total
  int held = 1;             ///< batches that the caller holds at a time, besides those
  std::shared_ptr<pipeline::SlotMemory> memory;  ///< of the batches; null: the host's ordinary
  Shuffle shuffle;
  bool drop_last = false;
  OnError on_error = OnError::fail;
  int grain = 0;  ///< samples a work unit; 0: chosen from their measured cost
  std::uint64_t seed = 0;
  std::uint64_t first_batch = 0;          ///< where to start, counted over all epochs
  std::uint64_t epochs = 1;               ///< next() ends after these
  std::uint64_t max_pixels = kMaxPixels;  ///< a larger image is refused before it is decoded
  /// All workers' memory for large samples: one that does not fit beside the others waits.
  std::uint64_t max_bytes = kMaxBytes;
  bool record = true;  ///< keep per-stage totals and Batch::history()
  std::shared_ptr<pipeline::LoaderTracks>
      timeline;  ///< written to as well; null: there is no timeline
  std::shared_ptr<pipeline::StorageModel>
      storage;  ///< an emulated disk; null: reads take what they take
  /// Called by next() before it hands out a batch, for each of its samples that failed, in order.
  std::function<void(const Failure&)> quarantine;
  const std::atomic<bool>* stop = nullptr;  ///< once set, next() ends as after interrupt()
};

std::uint64_t batches_per_epoch(const LoaderOptions& options, std::uint64_t samples);

/// Throws UsageError for a batch that is larger than the data set, for a rank outside of the world,
/// and where the largest image that max_pixels lets pass takes more than max_bytes; a Loader does
/// so too.
void check_batch(const LoaderOptions& options, const DatasetInfo& dataset);

/// What one stage did, summed over all workers.
struct StageTotals {
  std::uint64_t calls = 0;
  double wall_s = 0;
  double cpu_s = 0;
  std::uint64_t bytes = 0;
};

struct LoaderStats {
  StageTotals read, decode, augment;
  int io_threads = 0;  ///< that read; 0: the workers, or the caller, do
  ColdCounts cold;     ///< of data.cache=cold
  /// CPU time of the worker threads outside the stages: the graph, and spinning while idle.
  double machinery_cpu_s = 0;
  /// Of the workers (or, without any, the caller), wall time inside of work units, and of it the
  /// time that they were ready to run and had no core.
  double busy_s = 0;
  double core_wait_s = 0;
  std::uint64_t failed = 0;
};

/// A batch, or this rank's slice of it, on loan: its memory goes back to the loader when this is
/// destroyed.
class Batch {
 public:
  Batch() = default;
  Batch(std::shared_ptr<pipeline::LoaderCore> core, std::size_t slot);
  Batch(Batch&& other) noexcept;
  Batch& operator=(Batch&& other) noexcept;
  ~Batch();

  explicit operator bool() const { return core_ != nullptr; }
  /// Gives the memory back now.
  void release();

  /// count() samples one after the other, each as Transform::output() says; 64-byte aligned.
  const std::byte* data() const;
  std::size_t bytes() const;
  /// count() labels.
  const std::int64_t* labels() const;
  /// count() x classes() probabilities, where an op (mixup, cutmix) has mixed labels; else null,
  /// and classes() is 0.
  const float* probabilities() const;
  int classes() const;
  /// Samples that are there (on_error=skip, or an epoch's last batch, make it less than a full
  /// batch). With several ranks it may be 0: every rank gets every batch, also where its slice is
  /// empty.
  std::int64_t count() const;
  /// Samples that all ranks' slices have together, before any of them fails.
  std::int64_t global_count() const;
  std::uint32_t epoch() const;
  /// Place of the batch in its epoch.
  std::uint64_t index() const;
  /// How it came to be; its units hold as long as the batch. All zero without
  /// LoaderOptions::record.
  pipeline::BatchHistory history() const;

 private:
  std::shared_ptr<pipeline::LoaderCore> core_;
  std::size_t slot_ = 0;
};

/// Batches of `reader` through `transform`, in an order fixed by the options alone (determinism
/// contract): the slices of all ranks, one behind the other, are the batch of a single one. next()
/// and the destructor belong to one thread; a Batch may be given up by any.
class Loader {
 public:
  Loader(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
         LoaderOptions options);
  /// Stops the workers within one sample's work; one that is blocked in a read is left behind.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch; an empty Batch after the last one, or after interrupt(). Throws DataError for
  /// a sample that failed (on_error=fail), RunError when the caller holds every slot.
  Batch next();
  /// Goes on with the next batch on another number of workers. Batches that were made ahead are
  /// made again: the same ones (determinism contract). `timeline`: tracks for as many workers, or
  /// null. Does nothing after the last batch, or where a worker is stuck. Belongs to the thread
  /// that calls next().
  void restart(int workers, std::shared_ptr<pipeline::LoaderTracks> timeline);
  int workers() const;
  /// Makes a next() that waits, and every later one, return an empty Batch. Callable from any
  /// thread.
  void interrupt();

  std::uint64_t batches_per_epoch() const;
  /// Of all ranks together.
  std::uint64_t samples_per_epoch() const;
  /// Batches that there is memory for: prefetch and those that the caller may hold.
  std::size_t slots() const;
  /// Bytes of all slots together.
  std::size_t slot_bytes() const;
  LoaderStats stats() const;
  const SampleSpec& output() const;

 private:
  std::shared_ptr<const Reader> reader_;
  std::shared_ptr<const Transform> transform_;
  LoaderOptions options_;
  LoaderStats past_;     ///< of cores before a restart()
  std::mutex swapping_;  ///< core_, between restart() and an interrupt() from elsewhere
  std::shared_ptr<pipeline::LoaderCore> core_;
};

}  // namespace millrace
