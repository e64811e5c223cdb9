// Which batch would fit into a device's memory: a straight line through two that do. Free of
// LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace millrace::train {

/// What a step with so many samples has taken at its peak.
struct MemoryUse {
  std::int64_t samples = 0;
  std::uint64_t bytes = 0;
};

/// The largest number of samples whose bytes, by the line through `small` and `large`
/// (small.samples < large.samples), are at most `available`; empty where the line does not rise or
/// not even one fits.
std::optional<std::int64_t> samples_that_fit(const MemoryUse& small, const MemoryUse& large,
                                             std::uint64_t available);

/// What a device's allocator has given out.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Gives back what no tensor holds, and begins a new peak.
  virtual void reset() = 0;
  /// Most bytes that tensors have held since reset().
  virtual std::uint64_t peak() const = 0;
  /// Bytes that all tensors together may hold.
  virtual std::uint64_t available() const = 0;
};

/// Measures `step` with an eighth and a quarter of the samples that did not fit. Empty where that
/// tells nothing: too few samples, or `step` fails as well.
std::optional<std::int64_t> find_samples_that_fit(std::int64_t too_many, DeviceMemory& memory,
                                                  const std::function<void(std::int64_t)>& step);

}  // namespace millrace::train
