// Samples of a batch that could not be made.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace millrace::pipeline {

/// A failed sample that has not been reported yet.
struct Failed {
  std::int64_t place = 0;  ///< position in the batch
  std::uint64_t sample = 0;
  std::string name, reason;
};

/// Collects the failures of a batch. While its ranges are processed, any worker adds some; sort()
/// and the accessors are for the one that finishes the batch, and its consumer.
class BatchFailures {
 public:
  /// Forgets all of them, for the next batch.
  void clear();
  void add(Failed failed);
  /// Notes that no sample is at a position of the batch.
  void leave_out(std::int64_t place);
  /// Keeps the error of the earliest position.
  void note_error(std::int64_t place, std::exception_ptr error);

  /// Brings the lists into the batch's order.
  void sort();
  /// Returns the positions that were left out.
  const std::vector<std::int64_t>& left_out() const { return left_out_; }
  /// Returns all failures, of which one position may have several: attempts to replace its sample.
  std::span<Failed> all() { return all_; }
  /// Returns the error of the first failed position (on_error=fail), or null.
  const std::exception_ptr& error() const { return error_; }

 private:
  std::mutex mutex_;  ///< locked only if a sample fails
  std::vector<std::int64_t> left_out_;
  std::vector<Failed> all_;
  std::exception_ptr error_;
  std::int64_t error_place_ = -1;
};

}  // namespace millrace::pipeline
