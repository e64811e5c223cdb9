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
/// slice may be empty. With `pairs`, the cuts are even, so that ops which mix samples 2i and 2i+1
/// find both on one rank.
constexpr Slice rank_slice(std::int64_t length, int rank, int world, bool pairs) {
  const auto cut = [&](std::int64_t r) {
    if (r == world) return length;
    const std::int64_t at = r * length / world;
    return pairs ? at - at % 2 : at;
  };
  return {cut(rank), cut(rank + 1) - cut(rank)};
}

}  // namespace millrace::pipeline
