// A loop over independent items on all cores, with progress and the first error passed on.
#pragma once

#include <cstdint>
#include <functional>

namespace millrace::tools {

/// Called now and then from any thread, one call at a time: items done, and of how many.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// body(begin, end) for pieces of 0 .. count-1, in any order. `threads` 0: one a core. After an
/// exception no further piece is begun, and the exception is thrown from here.
void parallel_for(std::uint64_t count, std::uint64_t piece, int threads, const Progress& progress,
                  const std::function<void(std::uint64_t begin, std::uint64_t end)>& body);

}  // namespace millrace::tools
