// Tracks of a process, from which the trace of a run is made: which thread did what, and when. Off
// unless requested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/private_api.h"
#include "measure/batch_history.h"
#include "measure/spans.h"
#include "measure/track.h"

namespace millrace::measure {

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

}  // namespace millrace::measure
