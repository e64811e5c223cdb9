// Batch slots: memory that batches are written into in place, recycled from batch to batch
// (zero-copy contract), and the hand-over of a finished one to the consumer.
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

/// Which batch stands in a slot.
struct BatchId {
  std::uint64_t ordinal = 0;  ///< counted over all epochs
  std::uint32_t epoch = 0;
  std::uint64_t index = 0;  ///< in the epoch
  std::uint64_t first = 0;  ///< position in the epoch of the rank's first sample
  std::int64_t count = 0;   ///< samples that the rank's slice should have
  std::int64_t global = 0;  ///< and those of all ranks
};

/// A sample that an I/O thread has read.
struct Fetched {
  Sample sample;
  Buffer bytes;  ///< that the sample may lie in
  std::exception_ptr error;
};

/// A sample that failed, not yet told of.
struct Failed {
  std::int64_t place = 0;  ///< in the batch
  std::uint64_t sample = 0;
  std::string name, reason;
};

struct Slot {
  /// Memory for so many samples of `sample_bytes`, labels, and rows of `classes` probabilities.
  void reserve(const std::shared_ptr<SlotMemory>& from, std::size_t count, std::size_t sample_bytes,
               std::size_t classes);

  SlotBlock memory;  ///< of the three below, so that a device copies all of a batch alike
  std::uint8_t* samples = nullptr;  ///< one after the other
  std::span<std::int64_t> labels;
  std::span<float> probabilities;  ///< a row of classes a sample, where ops mix labels
  BatchId ticket;
  std::int64_t grain = 1;          ///< samples a unit of the batch
  std::vector<UnitHistory> units;  ///< of the batch; a unit's is written by who has it
  base::Clock::Ticks asked = 0, opened = 0, made = 0, got = 0, core_wait = 0;  ///< BatchHistory's
  std::int64_t valid = 0;                ///< samples that are there, once finished
  std::int64_t kept = 0;                 ///< samples in memory to be handed out again (cached)
  std::atomic<std::int64_t> missing{0};  ///< samples that no worker has finished yet
  std::atomic<std::uint32_t> ready{0};   ///< 1: finished, and with the consumer until it is freed
  std::atomic<std::uint32_t> freed{1};   ///< orders the consumer's last read before the next write
  std::vector<Fetched> fetched;          ///< a place each, with I/O threads; else empty
  std::atomic<std::uint64_t> fetched_runs{0};  ///< orders their writes before the workers' reads

  std::mutex failing;                ///< guards what follows; touched only when a sample fails
  std::vector<std::int64_t> failed;  ///< places in the batch of samples left out
  std::vector<Failed> failures;      ///< in any order
  std::exception_ptr error;          ///< of the first place that failed (on_error=fail)
  std::int64_t error_place = -1;
};

/// Waits for and announces a change of a slot's `ready`. One consumer, many workers.
class ReadyEvent {
 public:
  /// Returns once `ready` is 1 or one of the flags is set (`outer` may be null; it is only looked
  /// at every 100 ms, as nobody rings for it).
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
