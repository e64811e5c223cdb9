// Batch slots: memory that batches are written into in place, recycled from batch to batch
// (zero-copy contract).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "measure/batch_history.h"
#include "millrace/annotations.h"
#include "millrace/buffer.h"
#include "millrace/reader.h"
#include "millrace/transform.h"
#include "pipeline/loader/batch_failures.h"
#include "pipeline/loader/member_store.h"
#include "pipeline/loader/slot_memory.h"

namespace millrace::pipeline {

/// Identifies the batch in a slot.
struct BatchId {
  std::uint64_t ordinal = 0;  ///< counted over all epochs
  std::uint32_t epoch = 0;
  std::uint64_t index = 0;  ///< index in the epoch
  std::uint64_t first = 0;  ///< position in the epoch of the rank's first sample
  std::int64_t count = 0;   ///< samples that the rank's slice should have
  std::int64_t global = 0;  ///< samples that all ranks' slices should have
};

/// A sample that an I/O thread has read.
struct Fetched {
  Sample sample;
  Buffer bytes;  ///< memory that the sample may use
  std::span<const std::uint8_t> mask;
  Buffer mask_bytes;
  std::exception_ptr error;
};

/// Sizes of the parts of a batch's memory.
struct BatchShape {
  std::size_t samples = 0;
  std::size_t sample_bytes = 0;
  std::size_t mask_bytes = 0;  ///< per sample; 0: no masks
  std::size_t classes = 0;     ///< length of a row of probabilities
  bool warps = false;
  std::size_t members = 0;  ///< names of other members per sample
};

/// A batch and its memory. Batch::detach() takes it out of the slot.
struct BatchContents {
  void reserve(const std::shared_ptr<SlotMemory>& from, const BatchShape& shape);
  bool has_memory() const { return samples != nullptr; }
  /// Closes the gaps at `places`, which are in ascending order, among the first `id.count` samples,
  /// and sets `valid`.
  void leave_out(std::span<const std::int64_t> places);

  /// Block of the next four, so that a device copies the whole batch the same way.
  SlotBlock memory;
  std::uint8_t* samples = nullptr;  ///< one after the other
  std::span<std::int64_t> labels;
  std::span<float> probabilities;      ///< one row of classes per sample, if ops mix labels
  std::span<std::uint8_t> masks;       ///< one per sample, if the data set has any
  std::vector<std::uint64_t> indices;  ///< index of each sample in the data set
  std::vector<float> warps;            ///< nine numbers per sample; empty unless they are asked for
  Objects objects;                     ///< once finished; its memory is kept from batch to batch
  MemberStore members;
  std::size_t classes = 0;       ///< length of a row of probabilities; remains without memory
  std::size_t sample_bytes = 0;  ///< of one sample of this batch; at most those of its memory
  std::size_t mask_bytes = 0;    ///< likewise
  Size size;                     ///< of this batch's samples
  BatchId id;
  std::int64_t valid = 0;  ///< samples present, once finished
};

struct Slot : BatchContents {
  const Transform* transform = nullptr;  ///< of the batch's epoch
  std::atomic<bool> backed{false};  ///< has memory: set by the worker that begins its first range
  std::int64_t grain = 1;           ///< samples per range in this batch
  std::vector<measure::RangeHistory>
      units;  ///< history per range, written by the worker that has it
  /// Times of BatchHistory.
  base::Clock::Ticks asked = 0, opened = 0, made = 0, got = 0, core_wait = 0;
  std::int64_t kept = 0;  ///< samples in memory that can be handed out again (cached)
  std::atomic<std::int64_t> missing{0};  ///< samples that no worker has finished yet
  std::atomic<std::uint32_t> ready{0};   ///< 1: finished, and with the consumer until it is freed
  std::atomic<std::uint32_t> freed{1};   ///< orders the consumer's last read before the next write
  std::vector<Objects> range_objects;    ///< objects of each range, if the data set has any
  std::vector<Fetched> fetched;          ///< one per sample with I/O threads, otherwise empty
  /// Orders the I/O threads' writes before the workers' reads.
  std::atomic<std::uint64_t> fetched_runs{0};
  BatchFailures failures;
};

}  // namespace millrace::pipeline
