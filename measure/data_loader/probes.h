// Probes of a worker: measure each batch where it is made, and where it is sent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "measure/data_loader/clock.h"
#include "measure/data_loader/record_ring.h"
#include "measure/data_loader/usage.h"

namespace millrace::measure {

/// Measures the fetch of each batch, in the thread that constructs the probe. Without a file it
/// keeps the latest record.
class FetchProbe {
 public:
  FetchProbe(std::int64_t worker, std::int64_t served, const std::string& schedstat,
             std::shared_ptr<RecordRing> file)
      : generation(served),
        clock_(std::make_unique<ThreadClock>(schedstat)),
        file_(std::move(file)) {
    record_.worker = worker;
  }

  /// Goes on in the calling thread.
  void restart_clock(const std::string& schedstat) {
    clock_ = std::make_unique<ThreadClock>(schedstat);
    start_.reset();
  }
  /// Begins the batch `next_batch`. Returns whether its transforms are to be timed.
  bool begin();
  void collate() { collate_ = clock_->read(); }
  /// Ends a batch of so many samples. Returns the ns since its begin.
  std::int64_t end();
  /// Writes the record of the batch that has ended, unless its number is negative. `transform` and
  /// `transform_cpu` are kUnknown where the batch was not sampled.
  void keep(std::int64_t samples, std::int64_t transform, std::int64_t transform_cpu, Parts parts);

  /// Returns the latest record, or null.
  const WorkerRecord* latest() const { return any_ ? &record_ : nullptr; }
  const Parts& parts() const { return parts_; }

  std::int64_t generation;  ///< of the fetcher in use
  std::int64_t next_batch = kUnknown;
  /// Batches before the next one whose transforms are to be timed; kUnknown: there is none.
  std::int64_t unsampled = kUnknown;

 private:
  std::unique_ptr<ThreadClock> clock_;
  std::shared_ptr<RecordRing> file_;
  std::optional<Reading> start_;  ///< before the first batch
  std::optional<Reading> collate_;
  Reading begin_, end_;
  std::int64_t batch_ = kUnknown;
  bool any_ = false;
  WorkerRecord record_{};
  Parts parts_;
};

/// Measures pickling and sending of each batch, in the queue's feeder thread: its wall time, and on
/// some batches CPU and run-queue time, from which those of the others are estimated.
class SendProbe {
 public:
  SendProbe(std::string schedstat, std::shared_ptr<RecordRing> file)
      : schedstat_(std::move(schedstat)), file_(std::move(file)) {}

  /// Begins to pickle a batch; kUnknown: something else.
  void begin(std::int64_t batch);
  void pickled();
  void sent();

 private:
  Reading read() { return measures_ ? clock_->read() : Reading{wall_ns(), kUnknown, kUnknown}; }

  std::string schedstat_;
  std::shared_ptr<RecordRing> file_;
  std::optional<ThreadClock> clock_;  ///< of the feeder thread, which begins with the first batch
  std::int64_t batch_ = kUnknown;
  Reading begin_, pickled_;
  bool measures_ = false;
  UsageSampler sampler_;
  RecurringUsage pickling_, sending_;
};

}  // namespace millrace::measure
