// An emulated disk (`data.storage.*`): how long reads would take on one of a given bandwidth,
// latency and number of requests a second, so that a run bound by its storage can be studied
// anywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "pipeline/loader/timeline.h"

namespace millrace::pipeline {

/// Each 0: no limit.
struct StorageOptions {
  double bytes_per_s = 0;
  double latency_s = 0;
  double requests_per_s = 0;

  bool limited() const { return bytes_per_s > 0 || latency_s > 0 || requests_per_s > 0; }
};

/// One device, shared by all readers of a run. Requests begin no faster than requests_per_s; the
/// latency of several passes at the same time; their bytes then go over one bus, one request after
/// the other. Time is virtual and every deadline absolute: a thread that wakes late has its next
/// request counted from when it should have woken, so that rates hold whatever a sleep's grain.
class StorageModel {
 public:
  /// One thread's requests, one after the other.
  struct Lane {
    std::int64_t late_ns = 0;  ///< how long after its deadline the last one came back; may be < 0
  };

  explicit StorageModel(StorageOptions options) : options_(options) {}

  const StorageOptions& options() const { return options_; }
  /// From now on every request is a record there, too. Before the first one.
  void record_to(std::shared_ptr<Track<RequestRecord>> track) { track_ = std::move(track); }

  /// When a request of `bytes` made at `arrival_ns` is done; times as Clock::steady_ns().
  std::int64_t finish_ns(std::int64_t arrival_ns, std::uint64_t bytes);

  /// Sleeps until a request made at `begin_ns` is done, or soon after `stop` is set.
  void serve(std::int64_t begin_ns, std::uint64_t bytes, Lane& lane, const std::atomic<bool>& stop);

 private:
  const StorageOptions options_;
  std::mutex mutex_;
  std::int64_t origin_ns_ = -1;  ///< the first request; the clocks below count from it, in ns
  double next_request_ = 0;
  double bus_free_ = 0;
  std::shared_ptr<Track<RequestRecord>> track_;
};

}  // namespace millrace::pipeline
