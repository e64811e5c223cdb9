// Quantiles of any number of durations in bounded memory.
#pragma once

#include <array>
#include <cstdint>

namespace millrace::study {

/// Counts durations in classes that are 2% wide (in the manner of HdrHistogram: a power of two cut
/// into equal parts); 1 ns and less is one class.
class Quantiles {
 public:
  void add(double seconds);
  std::uint64_t count() const { return count_; }
  /// The value below which a part `q` of all lie, in seconds; 0 where there is none. `zeros` more
  /// of 0 s, which were not added, count as well.
  double at(double q, std::uint64_t zeros = 0) const;

 private:
  static constexpr unsigned kParts = 64;    ///< of a power of two
  static constexpr unsigned kOctaves = 43;  ///< 1 ns to 2.4 hours
  std::array<std::uint32_t, kParts * kOctaves> counts_{};
  std::uint64_t count_ = 0;
};

}  // namespace millrace::study
