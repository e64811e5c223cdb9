// The work on a sample range: read, decode, augment, store. The graph's workers and, with
// workers=0, the consumer's own thread call these functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "millrace/loader.h"
#include "pipeline/loader/memory_budget.h"
#include "pipeline/loader/reading.h"
#include "pipeline/loader/sample_range.h"
#include "pipeline/loader/sampler.h"
#include "pipeline/loader/slot.h"
#include "pipeline/loader/worker.h"
#include "pipeline/readers/storage.h"
#include "pipeline/targets/object_tracker.h"

namespace millrace::pipeline {

class RangeRecorder;

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
  Sample read(std::uint64_t index, Buffer& scratch, StorageModel::Lane& lane,
              const std::atomic<bool>& stop) const;
  /// Returns the mask of a sample, which is read if it did not come with the image.
  std::span<const std::uint8_t> mask_of(const Sample& sample, std::uint64_t index, Buffer& scratch,
                                        StorageModel::Lane& lane,
                                        const std::atomic<bool>& stop) const;
  bool work_in_place(const SampleRange& run, Slot& slot, Worker& worker, RangeRecorder& recorder,
                     const std::atomic<bool>& stop);
  void work_each(const SampleRange& run, Slot& slot, Worker& worker, RangeRecorder& recorder,
                 const std::atomic<bool>& stop);
  void one_place(const EpochOrder& order, std::int64_t place, Slot& slot, Worker& worker,
                 RangeRecorder& recorder, const std::atomic<bool>& stop);
  void one_sample(std::uint64_t index, std::int64_t place, const Fetched* fetched, Slot& slot,
                  Worker& worker, RangeRecorder& recorder, const std::atomic<bool>& stop);
  void transform(std::uint64_t index, const Sample& sample, std::int64_t place, Slot& slot,
                 Worker& worker, RangeRecorder& recorder, const std::atomic<bool>& stop);
  void move_mask(std::int64_t place, Slot& slot, Worker& worker, RangeRecorder& recorder) const;
  void failure(std::uint64_t index, std::int64_t place, Slot& slot, const Error& error);
  void track(std::uint64_t index, std::int64_t place, Size image, Slot& slot, Worker& worker,
             const std::atomic<bool>& stop) const;
  void join_objects(Slot& slot, std::span<const std::int64_t> without, Objects& to) const;
  void mix(Slot& slot, Worker& worker) const;
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
