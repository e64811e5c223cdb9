// Records of where a run's time went: how batches were made, the trainer thread's spans, and
// waits for a core.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

/// A span of the trainer thread (pipeline/loader/timeline.h).
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

/// Spans of the trainer thread's time: it is always in exactly one (conservation-of-time contract).
enum class Span {
  setup,        ///< before the first batch is requested: libraries, data set, model
  first_batch,  ///< waiting for the run's first batch
  load,         ///< waiting for (workers=0: making) every other batch
  h2d,          ///< copying a batch to the device
  forward,
  backward,
  step,         ///< optimiser step
  peer_wait,    ///< waiting for other ranks
  device_wait,  ///< waiting for the device
  evaluate,
  checkpoint,
  log,  ///< progress, records, hashing
  teardown,
};
inline constexpr std::size_t kSpanCount = 13;
inline constexpr std::array<std::string_view, kSpanCount> kSpanNames{
    "setup",     "first_batch", "load",     "h2d",        "forward", "backward", "step",
    "peer_wait", "device_wait", "evaluate", "checkpoint", "log",     "teardown"};

using SpanTicks = std::array<base::Clock::Ticks, kSpanCount>;

/// Returns whether a span counts as load: first_batch and load do.
constexpr bool is_load(Span span) { return span == Span::first_batch || span == Span::load; }
/// Returns whether a span counts as update: h2d, forward, backward, step, peer_wait and device_wait
/// do. All remaining spans are other.
constexpr bool is_update(Span span) { return span >= Span::h2d && span <= Span::device_wait; }

/// The trainer thread's clock. Entering a span ends the one before, so no time is lost between
/// them.
class SpanClock {
 public:
  explicit SpanClock(base::Clock::Ticks start) : since_(start) {}

  /// Ends the current span and begins `next`. Returns the span that ended.
  Span enter(Span next, base::Clock::Ticks now = base::Clock::now()) {
    ticks_[static_cast<std::size_t>(current_)] += now - since_;
    for (SpanLog* log : logs_) log->add({static_cast<int>(current_), since_, now});
    since_ = now;
    const Span before = current_;
    current_ = next;
    return before;
  }
  /// Returns the time in every span up to the last enter().
  const SpanTicks& ticks() const { return ticks_; }
  /// Returns the time of the last enter().
  base::Clock::Ticks since() const { return since_; }
  Span current() const { return current_; }
  /// Adds every span that ends from now on to `log`, which must outlive the clock or be dropped.
  void record_to(SpanLog* log) { logs_.push_back(log); }
  void drop(SpanLog* log) { std::erase(logs_, log); }

 private:
  SpanTicks ticks_{};
  base::Clock::Ticks since_;
  Span current_ = Span::setup;
  std::vector<SpanLog*> logs_;
};

/// Time in each kind of span, in seconds.
struct SpanSeconds {
  explicit SpanSeconds(const SpanTicks& ticks) {
    for (std::size_t i = 0; i < kSpanCount; ++i) {
      const double seconds = base::Clock::seconds(ticks[i]);
      each[i] = seconds;
      const Span span = static_cast<Span>(i);
      (is_load(span) ? load : is_update(span) ? update : other) += seconds;
    }
  }
  std::array<double, kSpanCount> each{};
  double load = 0;
  double update = 0;
  double other = 0;
  double total() const { return load + update + other; }
};

/// Why a step also sets something up, so that its time says nothing about the steps after it.
enum class SetUp {
  none,
  first,    ///< the first step that runs a model: libraries are loaded, memory is taken
  shape,    ///< the first of its kind: another number of samples, or of gradients to add to
  warm_up,  ///< before a CUDA graph is captured
  capture,  ///< captures a CUDA graph
};
inline constexpr std::size_t kSetUpCount = 5;
inline constexpr std::array<std::string_view, kSetUpCount> kSetUpNames{"none", "first", "shape",
                                                                       "warm_up", "capture"};

/// One step. It lasts from its beginning to the beginning of the next one, so that the rows of a
/// run add up to the run: setup belongs to the first step, an evaluation to the step before it.
struct StepRecord {
  std::uint32_t epoch = 0;  ///< from 1
  std::uint64_t step = 0;   ///< from 1, over all epochs
  std::int64_t images = 0;
  std::optional<double> loss;  ///< empty where it was not read
  SpanTicks ticks{};
  SetUp set_up = SetUp::none;
};

/// Measures how long a thread was ready to run without a core, at a cost below 1%
/// (cheap-measurement contract). Reads clocks only for work that is long enough, and the expensive
/// ones only if time is missing.
class SchedulerWait {
 public:
  /// Returns the calling thread's instance. It is thread_local because waiting is a property of the
  /// thread, unlike the memory that it works with.
  static SchedulerWait& mine();
  SchedulerWait(const SchedulerWait&) = delete;
  SchedulerWait& operator=(const SchedulerWait&) = delete;

  /// Measurements of one piece of work.
  struct Found {
    base::Clock::Ticks core_wait = 0;  ///< ready to run, without a core; 0 below 20 µs
    /// Off a core for other reasons: asleep, or waiting for storage.
    base::Clock::Ticks blocked = 0;
    bool faulted = false;      ///< it waited for a file's pages, among others
    std::int64_t cpu_ns = -1;  ///< CPU time; -1: not measured, the work was shorter than 100 µs
  };

  /// Begins a piece of work at `now`. Returns how long the thread had been ready without a core up
  /// to then, or 0 if it came straight from other work.
  base::Clock::Ticks begin(base::Clock::Ticks now);
  /// Ends the piece of work that began at `begin`.
  Found end(base::Clock::Ticks begin, base::Clock::Ticks now);

  /// Returns how long the thread has been ready to run without running since it started, in ns, or
  /// 0 if the system does not say (/proc/thread-self/schedstat). Costs about 1 µs.
  std::int64_t core_wait_ns() const;

 private:
  SchedulerWait();
  ~SchedulerWait();
  void read(base::Clock::Ticks now);

  int file_;
  base::Clock::Ticks ended_ = 0;    ///< end of the last piece of work
  base::Clock::Ticks read_at_ = 0;  ///< last reading of all clocks
  base::Clock::Ticks cpu_at_ = 0;   ///< last reading of the CPU clock
  std::int64_t cpu_ns_ = 0;
  std::int64_t core_wait_ns_ = 0;
  std::int64_t faults_ = 0;
};

}  // namespace millrace::pipeline
