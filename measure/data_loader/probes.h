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

/// Measures the fetch of each batch, in the thread that constructs the probe. In outline that is
/// its wall time, in detail also when the collate function begins, and the CPU and run-queue time
/// of both parts, which are estimated otherwise. Without a file, in the trainer's own thread, it
/// keeps the latest record, and estimates even the fetch of a step in outline.
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
  /// Begins the batch `next_batch`. Returns how it is recorded: in outline, in detail, or with its
  /// transforms.
  Depth begin();
  /// The collate function begins, in a batch that is measured in detail.
  void collate() { collate_ = clock_->read(); }
  /// Ends a batch of so many samples. Returns the ns since its begin.
  std::int64_t end();
  /// Counts a batch whose fetch is not told.
  void skip() {
    ++next_batch;
    if (unsampled != kUnknown) --unsampled;
  }
  /// Learns when the latest batch was fetched within its call of next(), from `asked` to `got`.
  void learn(std::int64_t asked, std::int64_t got);
  /// Returns the estimated record of a batch of so many samples that was skipped, from its call of
  /// next(); none before a batch was learned.
  std::optional<WorkerRecord> estimated(std::int64_t asked, std::int64_t got,
                                        std::int64_t samples) const;
  /// Returns whether the transforms of the next batch are to be timed.
  bool times_next() const { return unsampled == 0; }
  /// Writes the record of the batch that has ended, unless its number is negative. `transform` and
  /// `transform_cpu` are kUnknown where the batch was not sampled.
  void keep(std::int64_t samples, std::int64_t transform, std::int64_t transform_cpu, Parts parts);

  /// Estimates as another probe does, of the same loader.
  void learn_from(const FetchProbe& other) { estimates_ = other.estimates_; }

  /// Returns the latest record, or null.
  const WorkerRecord* latest() const { return any_ ? &record_ : nullptr; }
  const Parts& parts() const { return parts_; }

  std::int64_t generation;  ///< of the fetcher in use
  std::int64_t next_batch = kUnknown;
  /// Batches before the next one whose transforms are to be timed; kUnknown: there is none.
  std::int64_t unsampled = kUnknown;

 private:
  void estimate_parts(WorkerRecord& record) const;
  Reading read() { return measures_ ? clock_->read() : Reading{wall_ns(), kUnknown, kUnknown}; }

  /// Estimates from the batches that were measured.
  struct Estimates {
    PartEstimate fetch, since_fetched;  ///< of a call of next()
    PartEstimate collate;               ///< of the wall time of a fetch
    RecurringUsage in_dataset, in_collate;
  };

  std::unique_ptr<ThreadClock> clock_;
  std::shared_ptr<RecordRing> file_;
  Estimates estimates_;
  bool measures_ = true;
  UsageSampler sampler_;
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
