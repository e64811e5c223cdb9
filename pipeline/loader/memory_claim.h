// A large sample's share of the memory budget.
#pragma once

#include <cstdint>

#include "millrace/image.h"
#include "millrace/reader.h"
#include "pipeline/loader/memory_budget.h"
#include "pipeline/loader/worker.h"

namespace millrace::pipeline {

/// Returns the number of bytes that a sample may take while it is made from an encoded image, the
/// masks of its data set included.
std::uint64_t sample_bytes(const Reader& reader, std::uint64_t pixels, int channels, Depth depth,
                           int copies);

/// Holds a large sample's share of the memory budget while it is processed. Before it returns the
/// share, it frees the buffers that grew.
class MemoryClaim {
 public:
  MemoryClaim(MemoryBudget& memory, std::uint64_t bytes, MemoryBudget::Turn place, Worker& worker)
      : memory_(memory), worker_(worker), counted_(bytes > MemoryBudget::kSmall) {
    if (counted_) held_ = memory_.acquire(bytes, place);
  }
  ~MemoryClaim() {
    if (held_ == 0) return;
    worker_.decode.trim(MemoryBudget::kSmall);
    worker_.mask.trim(MemoryBudget::kSmall);
    if (worker_.instance.capacity() > MemoryBudget::kSmall) worker_.instance = Buffer();
    worker_.transform->trim(MemoryBudget::kSmall);
    memory_.release(held_);
  }
  MemoryClaim(const MemoryClaim&) = delete;
  MemoryClaim& operator=(const MemoryClaim&) = delete;
  /// Returns whether the sample may be processed; if not, the loader was stopped.
  bool granted() const { return !counted_ || held_ > 0; }

 private:
  MemoryBudget& memory_;
  Worker& worker_;
  const bool counted_;
  std::uint64_t held_ = 0;
};

}  // namespace millrace::pipeline
