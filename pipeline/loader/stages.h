// What is done to a run of samples: read, decode, augment, store. The same functions serve the
// graph's workers and, with workers=0, the consumer's own thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "millrace/loader.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/loader/memory_budget.h"
#include "pipeline/loader/sampler.h"
#include "pipeline/loader/slots.h"
#include "pipeline/readers/storage_model.h"

namespace millrace::pipeline {

/// Samples [first, first + count) of one batch: the unit that a worker takes.
struct SampleRange {
  std::size_t slot = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::size_t unit = 0;  ///< its place in Slot::units
};

/// A count with one writer at a time that others may read: no lock, no locked instruction.
template <class Number>
class Counter {
 public:
  void operator+=(Number more) { value_.store(get() + more, std::memory_order_relaxed); }
  Number get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Number> value_{0};
};

/// One stage's records of one thread.
struct StageRecord {
  Counter<std::uint64_t> calls;
  Counter<base::Clock::Ticks> ticks;
  Counter<std::uint64_t> bytes;
  Counter<std::uint64_t> sampled_calls;  ///< of the runs whose CPU time was taken as well
  Counter<std::int64_t> sampled_cpu_ns;
};

/// What an I/O thread needs and records.
struct Reading {
  StorageModel::Lane lane;
  StageRecord record;
  base::Clock::Ticks busy = 0, core_wait = 0;  ///< of the last sample
  Track<FetchRecord>* track = nullptr;         ///< of its reads, when there is a timeline
};

/// A worker's memory and records, leased for the length of a run (never thread_local: a thread may
/// serve several loaders). One cache line apart from the next.
struct alignas(64) Worker {
  Buffer bytes;  ///< of one sample
  StorageModel::Lane lane;
  DecodeScratch decode;
  std::unique_ptr<Transform::Scratch> transform;
  std::vector<Sample> samples;  ///< of a run, borrowed (pixels in place)
  std::vector<std::uint64_t> indices;

  std::atomic<bool> leased{false};
  StageRecord records[kStageCount];
  Counter<base::Clock::Ticks> busy_ticks;       ///< inside of units
  Counter<base::Clock::Ticks> core_wait_ticks;  ///< of it, waiting for a core
  std::uint64_t runs = 0;
};

class Stages {
 public:
  Stages(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
         const LoaderOptions& options);

  /// Reads the sample for one place of a batch, or notes why it cannot be read: what an I/O thread
  /// does ahead of work().
  void fetch(Slot& slot, std::int64_t place, Reading& reading, const std::atomic<bool>& stop) const;
  /// Carries out a run; ends early once `stop` is set. What fails is handled as on_error says.
  void work(const SampleRange& run, Slot& slot, Worker& worker, const std::atomic<bool>& stop);
  /// Keeps the error of the earliest place, for next() to throw.
  static void note_error(Slot& slot, std::int64_t place, std::exception_ptr error);
  /// Closes the gaps that samples left out have made and counts what is there.
  /// Ops on whole batches run first.
  void finish(Slot& slot, Worker& worker) const;
  /// Tells of the samples that failed, in the batch's order.
  void report(Slot& slot);
  /// Lets go of workers that wait for memory; their samples stay undone.
  void interrupt() { memory_.stop(); }

  const Reader& reader() const { return *reader_; }
  const Transform& transform() const { return *transform_; }
  std::uint64_t failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Measured time a sample, in ns; 0 before the first run has ended.
  std::int64_t cost_ns() const { return cost_.load(std::memory_order_relaxed); }

 private:
  struct Recorder;
  class Decoding;
  class Claim;

  Sample read(std::uint64_t index, Buffer& scratch, StorageModel::Lane& lane,
              const std::atomic<bool>& stop) const;
  bool work_in_place(const SampleRange& run, Slot& slot, Worker& worker, Recorder& recorder,
                     const std::atomic<bool>& stop);
  void work_each(const SampleRange& run, Slot& slot, Worker& worker, Recorder& recorder,
                 const std::atomic<bool>& stop);
  void one_place(const Sampler& sampler, std::int64_t place, Slot& slot, Worker& worker,
                 Recorder& recorder, const std::atomic<bool>& stop);
  void one_sample(std::uint64_t index, std::int64_t place, const Fetched* fetched, Slot& slot,
                  Worker& worker, Recorder& recorder, const std::atomic<bool>& stop);
  void transform(std::uint64_t index, const Sample& sample, std::int64_t place, Slot& slot,
                 Worker& worker, Recorder& recorder);
  void failure(std::uint64_t index, std::int64_t place, Slot& slot, const Error& error);
  void mix(Slot& slot, Worker& worker) const;
  void leave_out(std::int64_t place, Slot& slot);
  std::byte* place_of(Slot& slot, std::int64_t place) const;

  std::shared_ptr<const Reader> reader_;
  std::shared_ptr<const Transform> transform_;
  const LoaderOptions& options_;
  MemoryBudget memory_;
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<std::int64_t> cost_{0};
};

}  // namespace millrace::pipeline
