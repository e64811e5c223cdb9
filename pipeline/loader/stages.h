// The work on a sample range: read, decode, augment, store. The graph's workers and, with
// workers=0, the consumer's own thread call these functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "millrace/loader.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/decoders/label_png.h"
#include "pipeline/loader/memory_budget.h"
#include "pipeline/loader/sampler.h"
#include "pipeline/loader/slot.h"
#include "pipeline/readers/storage.h"
#include "pipeline/targets/object_tracker.h"

namespace millrace::pipeline {

/// Samples [first, first + count) of one batch, which a worker takes as one task.
struct SampleRange {
  std::size_t slot = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::size_t unit = 0;  ///< its index in Slot::units
};

/// A counter with one writer at a time that other threads may read, without locks or locked
/// instructions.
template <class Number>
class Counter {
 public:
  void operator+=(Number more) { value_.store(get() + more, std::memory_order_relaxed); }
  Number get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Number> value_{0};
};

/// Records of one stage on one thread.
struct StageRecord {
  Counter<std::uint64_t> calls;
  Counter<base::Clock::Ticks> ticks;
  Counter<std::uint64_t> bytes;
  Counter<std::uint64_t> sampled_calls;  ///< calls in ranges whose CPU time was measured
  Counter<std::int64_t> sampled_cpu_ns;
};

/// State and records of an I/O thread.
struct Reading {
  StorageModel::Lane lane;
  StageRecord record;
  base::Clock::Ticks busy = 0, core_wait = 0;  ///< time of the last sample
  measure::Track<measure::FetchRecord>* track =
      nullptr;  ///< track of its reads; null without a timeline
};

/// A worker's memory and records, leased for one range. Not thread_local, because a thread may
/// serve several loaders. Aligned to separate cache lines.
struct alignas(64) Worker {
  Buffer bytes;  ///< bytes of one sample
  Buffer mask_bytes;
  StorageModel::Lane lane;
  DecodeScratch decode;
  LabelPng mask;
  std::unique_ptr<Transform::Scratch> transform;
  std::vector<Sample> samples;  ///< samples of a range, borrowed (pixels in place)
  std::vector<std::uint64_t> indices;
  Trail trail;  ///< of the last sample, if samples are tracked
  ObjectTracker tracker;
  Buffer instance;   ///< mask of an object before it is moved, or of those that are pasted
  Objects mixed[2];  ///< of a batch, before and after an op mixes it

  std::atomic<bool> leased{false};
  StageRecord records[measure::kStageCount];
  Counter<base::Clock::Ticks> busy_ticks;       ///< time inside ranges
  Counter<base::Clock::Ticks> core_wait_ticks;  ///< the part of it spent waiting for a core
  std::uint64_t runs = 0;
};

/// Returns the number of bytes that a sample may take while it is made from an encoded image, the
/// masks of its data set included.
std::uint64_t sample_bytes(const Reader& reader, std::uint64_t pixels, int channels, Depth depth,
                           int copies);

class Stages {
 public:
  Stages(std::shared_ptr<const Reader> reader, std::shared_ptr<const Transform> transform,
         const LoaderOptions& options);

  /// Chooses the transform of a batch by its epoch, and sets the size of its samples.
  void shape(Slot& slot) const;
  /// Reads the sample of one position of a batch, or stores why it cannot be read. I/O threads call
  /// it ahead of work().
  void fetch(Slot& slot, std::int64_t place, Reading& reading, const std::atomic<bool>& stop) const;
  /// Processes a range; ends early once `stop` is set. Handles failures by on_error.
  void work(const SampleRange& run, Slot& slot, Worker& worker, const std::atomic<bool>& stop);
  /// Keeps the error of the earliest position, for next() to throw.
  static void note_error(Slot& slot, std::int64_t place, std::exception_ptr error);
  /// Mixes samples if an op does, joins the ranges' objects, then closes the gaps left by failed
  /// samples and counts the rest.
  void finish(Slot& slot, Worker& worker) const;
  /// Reports the failed samples, in the batch's order.
  void report(Slot& slot);
  /// Wakes workers that wait for memory; their samples stay undone.
  void interrupt() { memory_.stop(); }

  const Reader& reader() const { return *reader_; }
  const Transform& transform() const { return *transform_; }
  const Sampler& sampler() const { return sampler_; }
  /// Returns the size of a mask of `size` in bytes, or 0 if the data set has no masks.
  std::size_t mask_bytes(Size size) const { return has_masks_ ? area_of(size) : 0; }
  /// Returns the size of an object's mask in bytes, or 0 if objects have none.
  std::size_t instance_mask_bytes(Size size) const {
    return has_instance_masks() ? area_of(size) : 0;
  }
  std::uint64_t failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Returns the measured time per sample in ns, or 0 before the first range has ended.
  std::int64_t cost_ns() const { return cost_.load(std::memory_order_relaxed); }

 private:
  struct Recorder;
  class Decoding;
  class Unpacking;
  class Claim;

  Sample read(std::uint64_t index, Buffer& scratch, StorageModel::Lane& lane,
              const std::atomic<bool>& stop) const;
  /// Returns the mask of a sample, which is read if it did not come with the image.
  std::span<const std::uint8_t> mask_of(const Sample& sample, std::uint64_t index, Buffer& scratch,
                                        StorageModel::Lane& lane,
                                        const std::atomic<bool>& stop) const;
  bool work_in_place(const SampleRange& run, Slot& slot, Worker& worker, Recorder& recorder,
                     const std::atomic<bool>& stop);
  void work_each(const SampleRange& run, Slot& slot, Worker& worker, Recorder& recorder,
                 const std::atomic<bool>& stop);
  void one_place(const EpochOrder& order, std::int64_t place, Slot& slot, Worker& worker,
                 Recorder& recorder, const std::atomic<bool>& stop);
  void one_sample(std::uint64_t index, std::int64_t place, const Fetched* fetched, Slot& slot,
                  Worker& worker, Recorder& recorder, const std::atomic<bool>& stop);
  void transform(std::uint64_t index, const Sample& sample, std::int64_t place, Slot& slot,
                 Worker& worker, Recorder& recorder, const std::atomic<bool>& stop);
  void move_mask(std::int64_t place, Slot& slot, Worker& worker, Recorder& recorder) const;
  void failure(std::uint64_t index, std::int64_t place, Slot& slot, const Error& error);
  void track(std::uint64_t index, std::int64_t place, Size image, Slot& slot, Worker& worker,
             const std::atomic<bool>& stop) const;
  void join_objects(Slot& slot, std::span<const std::int64_t> without, Objects& to) const;
  void mix(Slot& slot, Worker& worker) const;
  void leave_out(std::int64_t place, Slot& slot);
  /// Returns whether the loader was stopped. Throws Error if the program was interrupted.
  bool stopped(const std::atomic<bool>& stop) const;
  /// Returns whether it is noted where samples' pixels go.
  bool is_tracked() const { return options_.warps || annotations_ != nullptr || has_masks_; }
  bool mixes() const { return transform_->group() != 1; }
  bool has_instance_masks() const { return annotations_ != nullptr && annotations_->has_outlines; }
  static std::size_t area_of(Size size) {
    return static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
  }
  static std::byte* place_of(Slot& slot, std::int64_t place);
  SampleKey key_of(const Slot& slot, std::int64_t place, std::uint64_t index) const {
    return sampler_.key(slot.id.epoch, slot.id.first + static_cast<std::uint64_t>(place), index);
  }

  std::shared_ptr<const Reader> reader_;
  std::shared_ptr<const Transform> transform_;
  const LoaderOptions& options_;
  const Annotations* const annotations_;  ///< of the reader; null if it has none
  const bool has_masks_;
  const TargetOptions tracking_;  ///< with which the objects of a sample are written
  const Sampler sampler_;
  MemoryBudget memory_;
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<std::int64_t> cost_{0};
};

}  // namespace millrace::pipeline
