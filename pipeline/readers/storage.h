// How samples come from storage: data.cache, and the emulated disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "measure/timeline.h"
#include "measure/track.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

/// data.cache=ram: wraps `reader` and keeps every sample's bytes in memory from its first read on.
/// Throws UsageError if the whole set is larger than the memory that is free now,
/// minus what other such caches have reserved.
std::unique_ptr<Reader> make_ram_reader(std::unique_ptr<Reader> reader);

/// Returns the number of bytes that can be allocated without evicting anything: MemAvailable, or
/// what the control group leaves if that is less.
std::uint64_t free_memory();

/// data.cache=cold: every read comes from storage, and a check before each read confirms it.
/// Wraps `reader`, whose samples must lie in files unchanged (Reader::locate); otherwise throws
/// UsageError. Before a read, evicts its pages from the page cache (posix_fadvise) and looks for
/// them (mincore); Reader::cold() counts the outcomes. Calls `warn` once if pages cannot be
/// evicted.
std::unique_ptr<Reader> make_cold_reader(std::unique_ptr<Reader> reader,
                                         std::function<void(const std::string&)> warn);

// An emulated disk (`data.storage.*`) of a given bandwidth, latency and number of requests per
// second, so that a storage-bound run can be studied anywhere.

/// Limits of the disk; 0: no limit.
struct StorageOptions {
  double bytes_per_s = 0;
  double latency_s = 0;
  double requests_per_s = 0;

  bool limited() const { return bytes_per_s > 0 || latency_s > 0 || requests_per_s > 0; }
};

/// One device, shared by all readers of a run. Requests start no faster than requests_per_s; their
/// latencies overlap; their bytes then pass over one bus, one request after the other. Time is
/// virtual and every deadline absolute: a late thread's next deadline is measured from the time
/// when it should have woken, so that rates hold whatever the granularity of sleep.
class StorageModel {
 public:
  /// One thread's requests, one after the other.
  struct Lane {
    std::int64_t late_ns = 0;  ///< how late the last request returned; may be < 0
  };

  explicit StorageModel(StorageOptions options) : options_(options) {}

  const StorageOptions& options() const { return options_; }
  /// Records every later request in `track`. Call it before the first request.
  void record_to(std::shared_ptr<measure::Track<measure::RequestRecord>> track) {
    track_ = std::move(track);
  }

  /// Returns when a request of `bytes` made at `arrival_ns` is done; times as Clock::steady_ns().
  std::int64_t finish_ns(std::int64_t arrival_ns, std::uint64_t bytes);

  /// Sleeps until a request made at `begin_ns` is done, or until soon after `stop` is set.
  void serve(std::int64_t begin_ns, std::uint64_t bytes, Lane& lane, const std::atomic<bool>& stop);

 private:
  const StorageOptions options_;
  std::mutex mutex_;
  std::int64_t origin_ns_ = -1;  ///< time of the first request; the clocks below count ns from it
  double next_request_ = 0;
  double bus_free_ = 0;
  std::shared_ptr<measure::Track<measure::RequestRecord>> track_;
};

}  // namespace millrace::pipeline
