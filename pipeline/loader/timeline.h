// Records of how batches were made: the history of each batch, and the tracks behind a run's trace.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/clock.h"
#include "base/private_api.h"

namespace millrace::pipeline {

// History of a batch: when it was requested, when its sample ranges were read and processed, and
// how long each stage took. Recorded for every batch at the cost of a few time stamps, so that any
// wait can be explained afterwards (study/analysis/wait_breakdown.h).

enum class Stage { read, decode, augment };
inline constexpr std::size_t kStageCount = 3;

/// Times of one sample range, which one worker processes from end to end. Values of Clock::now(); 0
/// if something did not happen. Fits two cache lines: a worker writes them, and the trainer thread
/// reads them.
struct alignas(64) RangeHistory {
  base::Clock::Ticks begin = 0;  ///< a worker took it
  base::Clock::Ticks end = 0;
  std::array<base::Clock::Ticks, kStageCount> stages{};  ///< total per stage; samples take turns
  /// Time during which the worker was ready to run and had no core; 0 below 20 µs.
  base::Clock::Ticks core_wait = 0;
  base::Clock::Ticks fetch_begin = 0;  ///< an I/O thread took its first sample (loader.io_threads)
  base::Clock::Ticks fetch_end = 0;    ///< its last sample was read

  /// Time before begin that the worker spent ready but without a core.
  base::Clock::Ticks begin_wait = 0;
  /// Time outside reads during which the worker waited for page faults.
  base::Clock::Ticks fault_wait = 0;
  std::array<std::uint64_t, kStageCount> bytes{};  ///< bytes read, decoded and written
  std::int64_t cpu_ns = -1;  ///< CPU time; -1: not measured (ranges below 100 µs)
  /// Fraction of the reading time during which its threads did not lack a core.
  float fetch_on_core = 1;
  std::uint32_t first = 0;   ///< position of its first sample in the batch
  std::uint32_t count = 0;   ///< number of samples
  std::uint32_t worker = 0;  ///< the worker's index, from 0
};
static_assert(sizeof(RangeHistory) == 128);

/// One batch, as the caller of Loader::next() saw it.
struct BatchHistory {
  std::uint64_t ordinal = 0;  ///< counted over all epochs
  std::uint32_t epoch = 0;
  std::uint64_t index = 0;        ///< index in the epoch
  bool first = false;             ///< the first batch of this loader
  bool made_inline = false;       ///< made inside next() (loader.workers=0)
  base::Clock::Ticks asked = 0;   ///< next() was called
  base::Clock::Ticks opened = 0;  ///< it got its slot, and its sample ranges were queued
  base::Clock::Ticks ready = 0;   ///< its last sample range was done
  base::Clock::Ticks got = 0;     ///< next() returned it
  /// Time between ready and got during which the caller waited for a core.
  base::Clock::Ticks core_wait = 0;
  std::span<const RangeHistory> units;  ///< in the batch's order
};

// Records behind the trace of a run: which thread did what, when. Off unless requested. Each track
// has a buffer with one writer, so that no thread waits for another.

/// Records of one track, in the order in which they ended. One thread at a time writes; any thread
/// may read meanwhile. Memory is bounded: when it is full, later records are counted and dropped.
template <class Record>
class Track {
 public:
  explicit Track(std::size_t capacity)
      : capacity_(capacity),
        records_(static_cast<Record*>(std::malloc(capacity * sizeof(Record)))) {
    static_assert(std::is_trivially_copyable_v<Record> && std::is_trivially_destructible_v<Record>);
    // The kernel allocates pages as they are written.
    if (records_ == nullptr) throw std::bad_alloc();
  }

  void add(const Record& record) {
    const std::size_t size = size_.load(std::memory_order_relaxed);
    if (size == capacity_) {
      left_out_.store(left_out_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return;
    }
    new (records_.get() + size) Record(record);
    size_.store(size + 1, std::memory_order_release);
  }
  std::span<const Record> records() const {
    return {records_.get(), size_.load(std::memory_order_acquire)};
  }
  std::uint64_t left_out() const { return left_out_.load(std::memory_order_relaxed); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::size_t capacity_;
  std::unique_ptr<Record, Free> records_;
  std::atomic<std::size_t> size_{0};
  std::atomic<std::uint64_t> left_out_{0};
};

/// A worker's range of one batch.
struct RangeRecord {
  std::uint64_t batch = 0;  ///< the batch's ordinal
  RangeHistory unit;
};

/// An I/O thread's read of one sample.
struct FetchRecord {
  std::uint64_t batch = 0;
  std::uint64_t place = 0;  ///< position in the batch
  base::Clock::Ticks begin = 0, end = 0;
  std::uint64_t bytes = 0;
};

/// A batch that next() returned.
struct BatchRecord {
  std::uint64_t batch = 0;
  std::uint32_t epoch = 0;
  std::uint64_t index = 0;
  base::Clock::Ticks asked = 0, opened = 0, ready = 0, got = 0;
};

/// A span of the trainer thread (pipeline/loader/spans.h).
struct SpanRecord {
  int span = 0;
  base::Clock::Ticks begin = 0, end = 0;
};

/// Receives the spans of a SpanClock as they end.
class SpanLog {
 public:
  virtual ~SpanLog() = default;
  virtual void add(const SpanRecord& span) = 0;
};

/// The trainer thread's track.
class SpanTrack final : public SpanLog {
 public:
  explicit SpanTrack(std::size_t capacity) : track_(capacity) {}
  void add(const SpanRecord& span) override { track_.add(span); }
  std::span<const SpanRecord> records() const { return track_.records(); }
  std::uint64_t left_out() const { return track_.left_out(); }

 private:
  Track<SpanRecord> track_;
};

/// The device's time on one step, on the host's clock.
struct DeviceRecord {
  std::uint64_t step = 0;  ///< counted over the run, from 1
  base::Clock::Ticks begin = 0, end = 0;
};

/// A request to the emulated storage, in Clock::steady_ns().
struct RequestRecord {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::uint64_t bytes = 0;
};

/// Tracks of one loader (training or evaluation). A loader that replaces another of the same shape
/// continues in the same tracks.
class LoaderTracks {
 public:
  /// Makes the tracks. With 0 workers, the caller's thread makes the batches and is worker 0.
  /// Throws std::bad_alloc.
  LoaderTracks(std::string name, int workers, int io_threads, std::size_t capacity);

  const std::string& name() const { return name_; }
  bool made_inline() const { return made_inline_; }
  Track<RangeRecord>& worker(std::size_t i) { return *workers_[i]; }
  Track<FetchRecord>& io(std::size_t i) { return *io_[i]; }
  Track<BatchRecord>& batches() { return batches_; }
  std::span<const std::unique_ptr<Track<RangeRecord>>> workers() const { return workers_; }
  std::span<const std::unique_ptr<Track<FetchRecord>>> io_threads() const { return io_; }
  const Track<BatchRecord>& batches() const { return batches_; }

 private:
  std::string name_;
  bool made_inline_;
  std::vector<std::unique_ptr<Track<RangeRecord>>> workers_;
  std::vector<std::unique_ptr<Track<FetchRecord>>> io_;
  Track<BatchRecord> batches_;
};

/// All tracks of a process.
class MILLRACE_PRIVATE_API Timeline {
 public:
  /// Limits each track to `capacity` records. At 128 Ki, a worker's full track takes 22 MB and
  /// lasts for half a minute of ranges of 200 µs. Seconds count from `ticks` and `ns`, which are
  /// one moment on both clocks.
  Timeline(base::Clock::Ticks ticks, std::int64_t ns, std::size_t capacity = std::size_t{1} << 17);

  /// Makes a loader's tracks for LoaderOptions::timeline. Must not be called while loaders run.
  std::shared_ptr<LoaderTracks> add_loader(std::string name, int workers, int io_threads);

  SpanTrack& trainer() { return trainer_; }
  Track<DeviceRecord>& device() { return device_; }
  Track<RequestRecord>& storage() { return *storage_; }
  /// Returns the track for StorageModel::record_to().
  std::shared_ptr<Track<RequestRecord>> shared_storage() { return storage_; }

  const SpanTrack& trainer() const { return trainer_; }
  const Track<DeviceRecord>& device() const { return device_; }
  const Track<RequestRecord>& storage() const { return *storage_; }
  std::span<const std::shared_ptr<LoaderTracks>> loaders() const { return loaders_; }
  std::uint64_t left_out() const;

  base::Clock::Ticks origin_ticks() const { return origin_ticks_; }
  std::int64_t origin_ns() const { return origin_ns_; }

 private:
  std::size_t capacity_;
  base::Clock::Ticks origin_ticks_;
  std::int64_t origin_ns_;
  SpanTrack trainer_;
  Track<DeviceRecord> device_;
  std::shared_ptr<Track<RequestRecord>> storage_;
  std::vector<std::shared_ptr<LoaderTracks>> loaders_;
};

}  // namespace millrace::pipeline
