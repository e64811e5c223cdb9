// Batch slots: memory that batches are written into in place, recycled from batch to batch
// (zero-copy contract), and the event that hands a finished one to the consumer.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "millrace/buffer.h"
#include "millrace/reader.h"
#include "pipeline/loader/history.h"
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
  std::exception_ptr error;
};

/// A failed sample that has not been reported yet.
struct Failed {
  std::int64_t place = 0;  ///< position in the batch
  std::uint64_t sample = 0;
  std::string name, reason;
};

struct Slot {
  /// Allocates `count` samples of `sample_bytes`, labels, and rows of `classes` probabilities.
  void reserve(const std::shared_ptr<SlotMemory>& from, std::size_t count, std::size_t sample_bytes,
               std::size_t classes);

  /// Block of the next three, so that a device copies the whole batch the same way.
  SlotBlock memory;
  std::uint8_t* samples = nullptr;  ///< one after the other
  std::span<std::int64_t> labels;
  std::span<float> probabilities;  ///< one row of classes per sample, if ops mix labels
  BatchId ticket;
  std::int64_t grain = 1;          ///< samples per range in this batch
  std::vector<UnitHistory> units;  ///< history per range, written by the worker that has it
  /// Times of BatchHistory.
  base::Clock::Ticks asked = 0, opened = 0, made = 0, got = 0, core_wait = 0;
  std::int64_t valid = 0;  ///< samples present, once finished
  std::int64_t kept = 0;   ///< samples in memory that can be handed out again (cached)
  std::atomic<std::int64_t> missing{0};  ///< samples that no worker has finished yet
  std::atomic<std::uint32_t> ready{0};   ///< 1: finished, and with the consumer until it is freed
  std::atomic<std::uint32_t> freed{1};   ///< orders the consumer's last read before the next write
  std::vector<Fetched> fetched;          ///< one per sample with I/O threads, otherwise empty
  /// Orders the I/O threads' writes before the workers' reads.
  std::atomic<std::uint64_t> fetched_runs{0};

  std::mutex failing;                ///< guards the members below; locked only if a sample fails
  std::vector<std::int64_t> failed;  ///< positions in the batch of samples left out
  std::vector<Failed> failures;      ///< in any order
  std::exception_ptr error;          ///< error of the first failed position (on_error=fail)
  std::int64_t error_place = -1;
};

/// Lets one consumer wait for a slot's `ready`, which many workers set.
class ReadyEvent {
 public:
  /// Returns once `ready` is 1 or one of the flags is set. `outer` may be null; it is polled every
  /// 100 ms, because its writer does not wake the consumer.
  void wait(std::atomic<std::uint32_t>& ready, const std::atomic<bool>& stopped,
            const std::atomic<bool>* outer);
  /// Sets `ready` and wakes the consumer if it sleeps.
  void ring(std::atomic<std::uint32_t>& ready);
  /// Wakes the consumer, whatever it waits for.
  void ring_all(std::vector<Slot>& slots);

 private:
  std::atomic<bool> sleeping_{false};
};

}  // namespace millrace::pipeline
