// The part of a global batch that a rank takes.
#pragma once

#include <cstdint>

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

}  // namespace millrace::pipeline
