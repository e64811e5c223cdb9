// Parallel loop over independent items, with progress and the first error passed on.
#pragma once

#include <cstdint>
#include <functional>

namespace millrace::tools {

/// Called now and then from any thread, one call at a time, with the items done and their total.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Calls body(begin, end) for pieces of 0 .. count-1, in any order. `threads` 0: one per core.
/// After an exception starts no further piece, and rethrows it.
void parallel_for(std::uint64_t count, std::uint64_t piece, int threads, const Progress& progress,
                  const std::function<void(std::uint64_t begin, std::uint64_t end)>& body);

}  // namespace millrace::tools
