// Quantiles of durations.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace millrace::measure {

/// Quantiles of any number of durations, in bounded memory. Counts durations in classes 2% wide, in
/// the manner of HdrHistogram: each power of two is cut into equal parts. 1 ns and less is one
/// class.
class Quantiles {
 public:
  void add(double seconds);
  /// Adds the durations that `other` has counted.
  void add(const Quantiles& other);
  std::uint64_t count() const { return count_; }
  /// Returns the `q` quantile (0..1) in seconds; 0 if nothing was added. Counts `zeros` additional
  /// durations of 0 s.
  double at(double q, std::uint64_t zeros = 0) const;

  /// A class that holds durations: its middle, and their number.
  struct Class {
    double seconds;
    std::uint64_t count;
  };
  /// Returns the classes that hold any, shortest first.
  std::vector<Class> classes() const;

 private:
  static double middle(std::size_t i);  ///< seconds

  static constexpr unsigned kParts = 64;    ///< classes per power of two
  static constexpr unsigned kOctaves = 43;  ///< 1 ns to 2.4 hours
  std::array<std::uint32_t, kParts * kOctaves> counts_{};
  std::uint64_t count_ = 0;
};

}  // namespace millrace::measure
