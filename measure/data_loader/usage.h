// CPU and run-queue time of work that recurs with every batch. Reading them takes system calls, so
// they are measured on some batches only.
#pragma once

#include <cstdint>
#include <random>

#include "measure/data_loader/clock.h"

namespace millrace::measure {

/// CPU and run-queue time of a stretch of time, in ns.
struct Usage {
  std::int64_t cpu = kUnknown;
  std::int64_t delay = kUnknown;
};

/// Returns the sum of two stretches; what is unknown of one is unknown of both.
Usage operator+(const Usage& one, const Usage& other);

/// Picks the batches to measure, such that the readings take at most 1/4000 of the time on average.
/// The intervals vary, as a loop may do something else in every so many steps.
class UsageSampler {
 public:
  /// Returns whether to measure a batch that begins now. The first one is measured. `cost`: ns of
  /// the readings of one batch.
  bool due(std::int64_t now, std::int64_t cost = 5000);

 private:
  std::int64_t next_ = 0;
  std::minstd_rand numbers_;
};

/// Usage of one kind of work. A batch that is not measured is taken to have used the CPU time of
/// the latest measured one, however long it took: threads that hand batches over wait for each
/// other and for the interpreter's lock. Of the rest, the share in which all measured ones had no
/// core counts as run-queue time.
class RecurringUsage {
 public:
  /// Returns what was measured between two readings, and learns from it.
  Usage measured(const Reading& begin, const Reading& end);
  /// Returns what work that was not measured is taken to have used, from its wall time.
  Usage estimated(std::int64_t wall) const;

 private:
  std::int64_t cpu_ = kUnknown;  ///< of the latest that was measured
  bool knows_delay_ = false;
  double off_core_ = 0, delay_ = 0;  ///< sums of all that was measured
};

}  // namespace millrace::measure
