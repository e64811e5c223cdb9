// Work that recurs with every batch. Measuring all of it takes system calls and passages through
// the interpreter, so it is measured on some batches only.
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

/// How a step or a batch is recorded: not at all; its begin and end, from which the rest is
/// estimated; with its parts; with its transforms too.
enum class Depth { none, outline, detail, transforms };

/// Picks the batches to measure: the first kAllOf, and then so few that measuring takes at most
/// 1/2000 of the time on average. The intervals vary, as a loop may do something else in every so
/// many steps.
class UsageSampler {
 public:
  static constexpr int kAllOf = 64;
  /// The most that was measured for a step in detail, in ns, with what its system calls slow down
  /// afterwards: the upper bounds of bench/watch_depths.py.
  static constexpr std::int64_t kDetailNs = 85'000;

  /// Returns whether to measure a batch that begins now. `cost`: ns that this takes.
  bool due(std::int64_t now, std::int64_t cost = kDetailNs);

 private:
  int picked_ = 0;
  std::int64_t next_ = 0;
  std::minstd_rand numbers_;
};

/// A part of a stretch of time, which was measured on some batches, from the length of the stretch:
/// by least squares, in which the latest some 64 measured batches count most. A part that is always
/// as long has the slope 0, one in proportion to the stretch has the slope 1.
class PartEstimate {
 public:
  void learn(std::int64_t whole, std::int64_t part);
  /// Returns the part of a stretch, from 0 to `whole`; kUnknown before anything was learned.
  std::int64_t of(std::int64_t whole) const;

 private:
  double weight_ = 0, whole_ = 0, part_ = 0;  ///< of those learned, and their means
  double variance_ = 0, covariance_ = 0;
};

/// Usage of one kind of work. The CPU time of a batch that is not measured is estimated from its
/// wall time: threads that hand batches over wait for each other and for the interpreter's lock
/// without computing more, while a larger picture takes more of both. Of the rest, the share in
/// which all measured ones had no core counts as run-queue time.
class RecurringUsage {
 public:
  /// Returns what was measured between two readings, and learns from it.
  Usage measured(const Reading& begin, const Reading& end);
  /// Returns what work that was not measured is taken to have used, from its wall time.
  Usage estimated(std::int64_t wall) const;

 private:
  PartEstimate cpu_;
  bool knows_delay_ = false;
  double off_core_ = 0, delay_ = 0;  ///< sums of all that was measured
};

}  // namespace millrace::measure
