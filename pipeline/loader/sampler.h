// The part of a global batch that a rank takes.
#pragma once

#include <cstdint>

#include "base/private_api.h"
#include "millrace/loader.h"

namespace millrace::pipeline {

/// Samples [first, first + count) of a global batch.
struct Slice {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Returns the slice of a rank (0 <= rank < world). Rank r of N takes samples [⌊rL/N⌋, ⌊(r+1)L/N⌋)
/// of L, so that all ranks together process exactly the batch of a single rank, tails included. A
/// slice may be empty. The cuts are multiples of `group`, so that ops which mix groups of that many
/// samples find each whole on one rank; 1 if there are none.
constexpr Slice rank_slice(std::int64_t length, int rank, int world, int group) {
  const auto cut = [&](std::int64_t r) {
    if (r == world) return length;
    const std::int64_t at = r * length / world;
    return at - at % group;
  };
  return {cut(rank), cut(rank + 1) - cut(rank)};
}

// The order of samples: a keyed permutation with O(1) memory and O(1) seek (determinism contract).

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
class MILLRACE_PRIVATE_API Sampler {
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
