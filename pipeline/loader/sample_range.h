// The unit of the workers' work.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::pipeline {

/// Samples [first, first + count) of one batch, which a worker takes as one task.
struct SampleRange {
  std::size_t slot = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::size_t unit = 0;  ///< its index in Slot::units
};

}  // namespace millrace::pipeline
