// The loader: reads, decodes and augments samples on worker threads and hands out batches in order,
// ahead of the consumer. The work is a oneTBB flow graph; without workers it runs on the caller's
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "millrace/annotations.h"
#include "millrace/export.h"
#include "millrace/limits.h"
#include "millrace/reader.h"
#include "millrace/transform.h"

namespace millrace::measure {
struct BatchHistory;
class LoaderTracks;
}  // namespace millrace::measure

namespace millrace::pipeline {
struct BatchContents;
class LoaderCore;
class SlotMemory;
class StorageModel;
}  // namespace millrace::pipeline

namespace millrace {

/// `loader.on_error`: how to treat a sample that cannot be read, decoded or augmented.
enum class OnError {
  fail,     ///< next() throws
  skip,     ///< the sample is left out: this rank's slice is one shorter, the other ranks are not
            ///< affected
  replace,  ///< a keyed draw picks another sample instead (8 attempts, then skip)
};

/// `loader.mode`: where the samples of a batch come from.
enum class LoaderMode {
  /// Every batch is read, decoded and augmented.
  normal,
  synthetic,  ///< slots are filled with noise once, and no sample is ever read
  cached,     ///< each slot is filled once, and its batch is handed out again and again
};

/// One failed sample, as recorded in quarantine.jsonl.
struct Failure {
  std::uint32_t epoch;
  std::uint64_t position;  ///< position in the epoch's order
  std::uint64_t sample;    ///< index in the data set
  std::string name;        ///< path, or file and position in it
  std::string reason;
};

/// `loader.shuffle`: the order of samples in an epoch.
struct MILLRACE_EXPORT Shuffle {
  enum class Kind { none, global, window } kind = Kind::global;
  /// Samples per window: the windows are shuffled, and the samples in each.
  std::uint64_t window = 0;

  /// Parses "global", "none" or "window:N" (N samples per window). Throws UsageError.
  static Shuffle parse(const std::string& text);
};

/// `sampler.*`: which samples an epoch holds, and how often.
struct SamplerOptions {
  enum class Kind {
    shuffle,   ///< each sample once, in the order of Shuffle
    weighted,  ///< each draw by its weight
    balanced,  ///< batches of equally many samples of each of their classes
    repeat,    ///< each sample several times in a row, augmented in different ways
    given,     ///< the samples that `order` returns, as if any may come again
  } kind = Kind::shuffle;
  /// weighted: the weight of each sample; null: every class is drawn equally often.
  std::shared_ptr<const std::vector<double>> weights{};
  /// weighted: false: no sample comes twice in an epoch.
  bool replacement = true;
  int per_class = 4;  ///< balanced: samples of each class in a batch
  int repeats = 3;    ///< repeat: how often a sample comes
  /// given: returns the indices of an epoch's samples, `samples` of them, each below the data set's
  /// count; or null: the epoch's batches are empty. Called for every sample range, from any thread.
  std::function<std::shared_ptr<const std::vector<std::uint64_t>>(std::uint32_t epoch)> order{};
  /// Samples per epoch; 0: as many as the data set has, and for balanced as many whole batches.
  std::uint64_t samples = 0;
};

/// Options of a Loader; most stand for a recipe key of the same name.
struct LoaderOptions {
  LoaderMode mode = LoaderMode::normal;
  int workers = 2;          ///< worker threads; 0: next() makes the batch itself
  int io_threads = 0;       ///< threads that read ahead of the workers; 0, or no workers: none
  std::int64_t batch = 64;  ///< samples per batch over all ranks
  int rank = 0;             ///< takes its slice of every batch; ranks count from 0
  int world = 1;            ///< number of ranks that share a batch
  int prefetch = 4;         ///< batches made ahead, in total
  int held = 1;             ///< batches that the caller may hold at a time, besides those
  /// Allocates the memory of batches; null: ordinary host memory.
  std::shared_ptr<pipeline::SlotMemory> memory;
  Shuffle shuffle;
  SamplerOptions sampler;
  bool drop_last = false;
  OnError on_error = OnError::fail;
  int grain = 0;  ///< samples per task; 0: chosen from the measured cost per sample
  std::uint64_t seed = 0;
  std::uint64_t first_batch = 0;          ///< ordinal to start from, counted over all epochs
  std::uint64_t epochs = 1;               ///< next() ends after these
  std::uint64_t max_pixels = kMaxPixels;  ///< a larger image is rejected before it is decoded
  /// Limits the memory of all workers together for large samples, in bytes. A sample that does not
  /// fit beside the others waits.
  std::uint64_t max_bytes = kMaxBytes;
  /// Lets libjpeg-turbo decode the Huffman codes of all JPEG images (`decode.jpeg=libjpeg`). The
  /// pixels are the same.
  bool only_libjpeg = false;
  bool warps = false;                               ///< keep Batch::warps()
  TargetOptions targets;                            ///< for data sets with annotations or masks
  bool record = true;                               ///< keep totals per stage and Batch::history()
  std::shared_ptr<measure::LoaderTracks> timeline;  ///< records a timeline; null: none
  /// Emulates a slower disk; null: reads take their natural time.
  std::shared_ptr<pipeline::StorageModel> storage;
  /// Called by next(), on its thread, for each failed sample of the batch that it is about to
  /// return, in order.
  std::function<void(const Failure&)> quarantine;
  const std::atomic<bool>* stop = nullptr;  ///< polled; once set, next() ends as after interrupt()
  /// Called by next() on its thread, every 100 ms while it waits for a worker. When it returns
  /// true, next() returns an empty Batch, and the next call goes on waiting for the same one. May
  /// be empty.
  std::function<bool()> poll;
};

/// Returns the number of samples in an epoch over all ranks, if the data set has `samples`.
MILLRACE_EXPORT std::uint64_t epoch_samples(const LoaderOptions& options, std::uint64_t samples);
/// Returns the number of batches in an epoch over all ranks, if the data set has `samples` samples.
MILLRACE_EXPORT std::uint64_t batches_per_epoch(const LoaderOptions& options,
                                                std::uint64_t samples);

/// Throws UsageError if the rank lies outside the world, if the batch is larger than the data set
/// or an epoch, if the sampler's options do not fit, or if the largest image that max_pixels allows
/// takes, with its mask, more than max_bytes. The constructor of Loader makes the same checks.
MILLRACE_EXPORT void check_batch(const LoaderOptions& options, const Reader& reader);

/// Throws UsageError if the data set has objects or masks that an op of `transform` cannot take
/// along, or lacks masks that one needs, or if the flip pairs do not fit its key points. The
/// constructor of Loader makes the same checks.
MILLRACE_EXPORT void check_targets(const LoaderOptions& options, const Reader& reader,
                                   const Transform& transform);

/// Totals of one stage, summed over all workers. Times are in seconds.
struct StageTotals {
  std::uint64_t calls = 0;
  double wall_s = 0;
  double cpu_s = 0;
  std::uint64_t bytes = 0;
};

/// Counters of a loader since it was constructed, restarts included. Times are in seconds.
struct LoaderStats {
  StageTotals read, decode, augment;
  int io_threads = 0;  ///< I/O threads that read; 0: the workers, or the caller, read
  ColdCounts cold;     ///< counts of data.cache=cold
  /// CPU time of the worker threads outside the stages: scheduling, and spinning while idle.
  double machinery_cpu_s = 0;
  /// Wall time inside tasks, summed over the workers (or the caller, without workers), and the part
  /// of it during which they were ready to run and had no core.
  double busy_s = 0;
  double core_wait_s = 0;
  std::uint64_t failed = 0;
  std::uint64_t extra_blocks = 0;  ///< blocks allocated beside the slots, for Batch::detach()
};

/// One batch, or this rank's slice of it, on loan from the loader. The destructor returns the
/// memory to the loader; the memory stays valid until then, also when the Loader is destroyed
/// first. Move-only. Any thread may release it, one at a time. An empty Batch (false) has no data:
/// call no accessor on it. A batch that is kept for long can be detached: the loader then goes on
/// with other memory.
class MILLRACE_EXPORT Batch {
 public:
  Batch() = default;
  Batch(std::shared_ptr<pipeline::LoaderCore> core, std::size_t slot);
  Batch(Batch&& other) noexcept;
  Batch& operator=(Batch&& other) noexcept;
  ~Batch();

  explicit operator bool() const { return contents_ != nullptr; }
  /// Returns the memory to the loader now and leaves this empty.
  void release();
  /// Takes the memory out of the loader without copying, and gives the slot another block. The
  /// caller no longer holds the slot, so any number of detached batches neither delays next() nor
  /// makes it fail. Blocks of detached batches are used again once these are released; the loader
  /// keeps at most slots() + 1 of them unused. Throws std::bad_alloc, or what
  /// LoaderOptions::memory throws. Copies the batch in LoaderMode synthetic and cached.
  void detach();

  /// Returns count() samples one after the other, 64-byte aligned. Transform::output() gives the
  /// layout and type of one, and size() its size.
  const std::byte* data() const;
  /// Returns the size of a sample, which may depend on the epoch: Transform::at().
  Size size() const;
  /// Returns the size of data() in bytes.
  std::size_t bytes() const;
  /// Returns count() labels, each an index into DatasetInfo::classes.
  const std::int64_t* labels() const;
  /// Returns count() x classes() probabilities, row by row, if an op mixed labels (mixup, cutmix).
  /// Otherwise returns null, and classes() returns 0.
  const float* probabilities() const;
  int classes() const;
  /// Returns count() indices in the data set, one for each sample. With on_error=replace it is the
  /// index of the sample that took the place; in LoaderMode synthetic it is 0.
  const std::uint64_t* samples() const;
  /// Returns count() maps of nine numbers each, row by row: W with x_out = W x_in in homogeneous
  /// coordinates at pixel centres, of the upright image and of the sample. NaN where no such map
  /// exists. Null unless LoaderOptions::warps is set.
  const float* warps() const;
  /// Returns what is left of the objects in the samples. Of its offsets, the first count() + 1
  /// count; there is only one if the reader has no annotations.
  const Objects& objects() const;
  /// Returns count() masks one after the other, 64-byte aligned: the class id of each pixel of the
  /// samples. Empty if the data set has none.
  std::span<const std::uint8_t> masks() const;
  /// Returns the bytes of the member that sample `sample` (0 to count() - 1) has of the name at
  /// `name` in DatasetInfo::members; nothing if it has none. They belong to the batch, like data().
  /// Where an op mixes samples, they are those of the sample that samples() names.
  Member member(std::int64_t sample, std::size_t name) const;
  /// Returns the number of samples present. It is less than a full batch after on_error=skip and at
  /// the end of an epoch. With several ranks it may be 0: every rank gets every batch, even if its
  /// slice is empty.
  std::int64_t count() const;
  /// Returns the number of samples in the slices of all ranks together, before failures.
  std::int64_t global_count() const;
  /// Returns the epoch, counted from 0.
  std::uint32_t epoch() const;
  /// Returns the batch's index in its epoch, counted from 0.
  std::uint64_t index() const;
  /// Returns when and by whom the batch was made. Its list of tasks is valid as long as the batch.
  /// All zero unless LoaderOptions::record is set, and after detach().
  measure::BatchHistory history() const;

 private:
  std::shared_ptr<pipeline::LoaderCore> core_;  ///< null once detached
  std::size_t slot_ = 0;
  std::shared_ptr<const pipeline::BatchContents> own_;  ///< memory of a detached batch
  const pipeline::BatchContents* contents_ = nullptr;   ///< the slot's, or own_
};

/// Hands out batches of `reader` through `transform` in an order that depends on the options alone
/// (determinism contract). The slices of all ranks, concatenated, are the batch of a single rank.
///
/// All members but interrupt() belong to one thread; a Batch may be released by any thread.
class MILLRACE_EXPORT Loader {
 public:
  /// Allocates the slots and starts the workers. Shares ownership of `reader` and `transform`.
  /// Throws UsageError for options that do not fit (check_batch()) and RunError if a thread cannot
  /// be started.
  Loader(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
         LoaderOptions options);
  /// Stops the workers within one sample's work (prompt-stop contract). A worker that is blocked in
  /// a read for more than 2 seconds is left behind with the memory that it uses.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Returns the next batch, waiting for it if necessary. Returns an empty Batch after the last one
  /// or after interrupt(). Throws DataError for a sample that failed (on_error=fail), and RunError
  /// if the caller still holds every slot.
  Batch next();
  /// Continues after the current batch with another number of workers. Batches that were made ahead
  /// are made again with the same bytes (determinism contract). `timeline` has tracks for as many
  /// workers, or is null. Does nothing after the last batch, or if a worker is stuck.
  void restart(int workers, std::shared_ptr<measure::LoaderTracks> timeline);
  /// Returns the number of worker threads in use.
  int workers() const;
  /// Makes a waiting next(), and every later one, return an empty Batch. Safe to call from any
  /// thread.
  void interrupt();

  /// Returns the number of batches per epoch, which is the same on every rank.
  std::uint64_t batches_per_epoch() const;
  /// Returns the number of samples per epoch over all ranks, without those that drop_last drops.
  std::uint64_t samples_per_epoch() const;
  /// Returns the number of batches that have memory: prefetch (1 without workers) plus held.
  std::size_t slots() const;
  /// Returns the size of all slots together, in bytes.
  std::size_t slot_bytes() const;
  /// Returns the counters so far; may be called while batches are made.
  LoaderStats stats() const;
  /// Returns the shape and type of one sample; valid as long as the loader.
  const SampleSpec& output() const;

 private:
  std::shared_ptr<const Reader> reader_;
  std::shared_ptr<const Transform> transform_;
  LoaderOptions options_;
  LoaderStats past_;     ///< counters of the cores before the last restart()
  std::mutex swapping_;  ///< guards core_ between restart() and an interrupt() from another thread
  std::shared_ptr<pipeline::LoaderCore> core_;
};

}  // namespace millrace
