// The order of samples: a keyed permutation with O(1) memory and O(1) seek (determinism contract).
#pragma once

#include <cstdint>

#include "millrace/loader.h"

namespace millrace::pipeline {

/// A pseudo-random permutation of 0 .. count-1 chosen by `key`: an unbalanced Feistel network on
/// the smallest power of two that holds `count`, followed along its cycle until it lands inside
/// (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
class Permutation {
 public:
  Permutation(std::uint64_t count, std::uint64_t key);
  /// Returns the value at `position`; `position` < count.
  std::uint64_t operator()(std::uint64_t position) const;
  /// Returns the position of `value`; `value` < count.
  std::uint64_t inverse(std::uint64_t value) const;

 private:
  std::uint64_t mixed(std::uint64_t half, int round) const;

  std::uint64_t count_;
  std::uint64_t key_;
  int high_bits_;
  int low_bits_;
};

/// Maps a position in an epoch to a sample's index.
class Sampler {
 public:
  Sampler(std::uint64_t count, Shuffle shuffle, std::uint64_t seed, std::uint32_t epoch);
  std::uint64_t operator()(std::uint64_t position) const;

 private:
  std::uint64_t count_;
  Shuffle shuffle_;
  std::uint64_t key_;
  Permutation order_;            ///< order of samples (global) or of windows (window)
  std::uint64_t missing_ = 0;    ///< samples that the last window lacks
  std::uint64_t short_end_ = 0;  ///< first position behind the short window
};

}  // namespace millrace::pipeline
