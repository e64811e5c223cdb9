// Reads steps.csv and reduces it to some hundreds of points: neighbouring steps are added up, none
// is left out.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "pipeline/loader/spans.h"
#include "study/analysis/quantiles.h"

namespace millrace::study {

using SpanNs = std::array<std::int64_t, pipeline::kSpanCount>;

/// Neighbouring steps, added up. Times are whole nanoseconds, as in the table, so that sums are
/// exact.
struct StepSum {
  std::uint64_t first = 0;  ///< number of the first step
  std::uint64_t last = 0;
  std::uint64_t steps = 0;
  std::int64_t images = 0;
  double loss_sum = 0;       ///< sum of the losses that were read back
  std::uint64_t losses = 0;  ///< number of those losses
  SpanNs ns{};

  void add(const StepSum& next);
  /// Return the sums of all load spans (first_batch included), of update, and of the other spans.
  std::int64_t load_ns() const;
  std::int64_t update_ns() const;
  std::int64_t other_ns() const;
  /// Returns the middle between its first and last step.
  double middle() const { return 0.5 * static_cast<double>(first + last); }
};

/// Adds steps up as they arrive, in at most 2 * `points` sums of equal width (the last may be
/// shorter). When there would be more, each pair of neighbours becomes one sum.
class StepReduction {
 public:
  explicit StepReduction(std::size_t points = 200) : points_(points) {}
  void add(const StepSum& step);
  const std::vector<StepSum>& sums() const { return sums_; }
  /// Returns the steps per sum; the last sum may have fewer.
  std::uint64_t width() const { return width_; }

 private:
  std::size_t points_;
  std::uint64_t width_ = 1;
  std::vector<StepSum> sums_;
};

struct StepTable {
  StepReduction reduced;
  StepSum all;
  Quantiles load, update, other;  ///< seconds per step
  bool there = false;             ///< the file exists
  bool cut = false;               ///< the last row was incomplete and is left out
};

/// Reads steps.csv or steps.rankR.csv. Throws DataError with the line of a malformed row.
StepTable read_steps(const std::filesystem::path& file);

}  // namespace millrace::study
