// Quantiles of any number of durations, in bounded memory.
#pragma once

#include <array>
#include <cstdint>

namespace millrace::study {

/// Counts durations in classes 2% wide, in the manner of HdrHistogram: each power of two is cut
/// into equal parts. 1 ns and less is one class.
class Quantiles {
 public:
  void add(double seconds);
  std::uint64_t count() const { return count_; }
  /// Returns the `q` quantile (0..1) in seconds; 0 if nothing was added. Counts `zeros` additional
  /// durations of 0 s.
  double at(double q, std::uint64_t zeros = 0) const;

 private:
  static constexpr unsigned kParts = 64;    ///< classes per power of two
  static constexpr unsigned kOctaves = 43;  ///< 1 ns to 2.4 hours
  std::array<std::uint32_t, kParts * kOctaves> counts_{};
  std::uint64_t count_ = 0;
};

}  // namespace millrace::study
