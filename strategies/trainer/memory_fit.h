// Estimates the batch size that fits into a device's memory, by a straight line through two smaller
// ones. Independent of LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/private_api.h"

namespace millrace::train {

/// Peak memory of a step with `samples` samples.
struct MemoryUse {
  std::int64_t samples = 0;
  std::uint64_t bytes = 0;
};

/// Returns the largest number of samples whose bytes are at most `available`, by the line through
/// `small` and `large` (small.samples < large.samples). Empty if the line does not rise or no
/// sample fits.
std::optional<std::int64_t> samples_that_fit(const MemoryUse& small, const MemoryUse& large,
                                             std::uint64_t available);

/// Statistics of a device's allocator.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Releases cached memory and starts a new peak.
  virtual void reset() = 0;
  /// Returns the most bytes that tensors have held since reset().
  virtual std::uint64_t peak() const = 0;
  /// Returns the bytes that all tensors together may hold.
  virtual std::uint64_t available() const = 0;
};

/// Measures `step` with an eighth and a quarter of the samples that did not fit, or with half of
/// that, and so on, if `step` fails as well. Empty if there are then too few samples.
MILLRACE_PRIVATE_API std::optional<std::int64_t> find_samples_that_fit(
    std::int64_t too_many, DeviceMemory& memory, const std::function<void(std::int64_t)>& step);

}  // namespace millrace::train
