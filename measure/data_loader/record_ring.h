// Shared memory for batch records: workers write one record per batch, the trainer's process reads
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "measure/data_loader/script_descriptor.h"
#include "measure/data_loader/usage.h"

namespace millrace::measure {

/// History of one batch inside a worker. Times are ns of CLOCK_MONOTONIC, durations ns; -1 is
/// unknown.
struct WorkerRecord {
  std::int64_t generation;  ///< from 1: iteration that this worker serves; 0 is an empty slot
  std::int64_t batch;
  std::int64_t worker;
  std::int64_t begin;    ///< fetch begins
  std::int64_t collate;  ///< the collate function begins
  std::int64_t end;      ///< fetch ends
  std::int64_t dataset_cpu;
  std::int64_t dataset_delay;
  std::int64_t collate_cpu;
  std::int64_t collate_delay;
  std::int64_t samples;
  std::int64_t transform;  ///< in the transforms; -1 on batches that were not sampled
  std::int64_t transform_cpu;
  std::int64_t start_cpu;  ///< of the worker's thread before its first batch
  std::int64_t start_delay;
  // Written by the feeder thread after the batch was sent.
  std::int64_t send_key;    ///< batch number + 1, written last, read first
  std::int64_t send_begin;  ///< the feeder thread begins to pickle
  std::int64_t send_end;    ///< the bytes are in the pipe
  std::int64_t send_cpu;
  std::int64_t send_delay;
  std::int64_t send_waited;  ///< of send_end - send_begin: blocked until the pipe had room

  bool sent() const { return send_key == batch + 1; }
};

/// Numbers of a record, and those that the worker's main thread writes.
inline constexpr std::size_t kRecordFields = sizeof(WorkerRecord) / sizeof(std::int64_t);
inline constexpr std::size_t kFetchFields = 15;

/// Wall and CPU time of each transform, in turn.
using Parts = std::vector<std::int64_t>;

/// Ring of records in shared memory. A record lies at its batch number modulo the number of slots,
/// whichever worker makes the batch. One that was overwritten before it was read is an overrun.
///
/// It is an anonymous file, whose pages exist before they are mapped: a page of a disk that has
/// filled up or gone away would be a SIGBUS at a store.
class RecordRing {
 public:
  /// Makes a ring, or maps the one that lies at a path() of another process. `parts` is the number
  /// of transforms. Throws std::system_error if there is no memory, and if there is no such ring or
  /// a shorter one.
  RecordRing(std::int64_t slots, std::int64_t parts, const std::string& path = {});
  ~RecordRing();
  RecordRing(const RecordRing&) = delete;
  RecordRing& operator=(const RecordRing&) = delete;

  /// Returns where other processes of this user find the ring, as long as it exists.
  const std::string& path() const { return path_; }

  /// Writes the fields of the worker's main thread, and clears those of its feeder.
  void write(const WorkerRecord& record, const Parts& parts);
  void write_sending(std::int64_t batch, std::int64_t begin, std::int64_t end, const Usage& usage,
                     std::int64_t waited);
  /// Reads the record of a batch. Returns false if its slot holds another.
  bool read(std::int64_t generation, std::int64_t batch, WorkerRecord& record, Parts& parts) const;
  /// Returns the records of all batches that are made, in the order of their slots. Fields that say
  /// nothing are 0: those of sending before it ended, and `collate` where it lies outside.
  std::vector<WorkerRecord> made() const;
  /// Returns whether the slot of a batch was overwritten by a later one.
  bool holds_later(std::int64_t generation, std::int64_t batch) const;

  std::int64_t slots() const { return slots_; }

 private:
  std::byte* slot(std::int64_t batch) const;

  std::size_t bytes() const { return static_cast<std::size_t>(slots_) * size_; }

  std::string path_;
  std::int64_t slots_;
  std::size_t parts_;
  std::size_t size_;  ///< bytes per slot
  ScriptDescriptor file_;
  std::byte* map_ = nullptr;
};

}  // namespace millrace::measure
