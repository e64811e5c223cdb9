// steps.csv, reduced to some hundreds of points: neighbouring steps are added up, none is left out.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "pipeline/loader/spans.h"
#include "study/analysis/quantiles.h"

namespace millrace::study {

using SpanNs = std::array<std::int64_t, pipeline::kSpanCount>;

/// Neighbouring steps, added up. Times are whole nanoseconds, as the table has them, so that sums
/// are exact.
struct StepSum {
  std::uint64_t first = 0;  ///< number of its first step
  std::uint64_t last = 0;
  std::uint64_t steps = 0;
  std::int64_t images = 0;
  double loss_sum = 0;       ///< of the losses that were read
  std::uint64_t losses = 0;  ///< how many
  SpanNs ns{};

  void add(const StepSum& next);
  /// Of all load (first_batch included), update and other spans.
  std::int64_t load_ns() const;
  std::int64_t update_ns() const;
  std::int64_t other_ns() const;
  /// The middle between its first and last step.
  double middle() const { return 0.5 * static_cast<double>(first + last); }
};

/// Adds steps up while they come: at most 2 * `points` sums, all of one width but the last. When
/// there would be more, each two neighbours become one.
class StepReduction {
 public:
  explicit StepReduction(std::size_t points = 200) : points_(points) {}
  void add(const StepSum& step);
  const std::vector<StepSum>& sums() const { return sums_; }
  /// Steps in each but the last.
  std::uint64_t width() const { return width_; }

 private:
  std::size_t points_;
  std::uint64_t width_ = 1;
  std::vector<StepSum> sums_;
};

struct StepTable {
  StepReduction reduced;
  StepSum all;
  Quantiles load, update, other;  ///< seconds a step
  bool there = false;             ///< there is such a file
  bool cut = false;               ///< its last row was not written to its end, and is left out
};

/// Of steps.csv or steps.rankR.csv. Throws DataError with the line where one is no row of such a
/// table.
StepTable read_steps(const std::filesystem::path& file);

}  // namespace millrace::study
