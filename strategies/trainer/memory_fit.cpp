// Extrapolates memory use linearly.
#include "strategies/trainer/memory_fit.h"

#include <exception>

namespace millrace::train {

std::optional<std::int64_t> samples_that_fit(const MemoryUse& small, const MemoryUse& large,
                                             std::uint64_t available) {
  if (large.samples <= small.samples || large.bytes <= small.bytes) return std::nullopt;
  const double each = static_cast<double>(large.bytes - small.bytes) /
                      static_cast<double>(large.samples - small.samples);
  const double fixed = static_cast<double>(small.bytes) - each * static_cast<double>(small.samples);
  const double fit = (static_cast<double>(available) - fixed) / each;
  if (fit < 1) return std::nullopt;
  return static_cast<std::int64_t>(fit);
}

std::optional<std::int64_t> find_samples_that_fit(std::int64_t too_many, DeviceMemory& memory,
                                                  const std::function<void(std::int64_t)>& step) {
  const auto use_of = [&](std::int64_t samples) -> MemoryUse {
    memory.reset();
    step(samples);
    return {samples, memory.peak()};
  };
  constexpr std::int64_t kLeast = 2;  // batch normalisation needs two samples
  for (std::int64_t large = too_many / 4; large / 2 >= kLeast; large /= 2) {
    try {
      const MemoryUse small = use_of(large / 2);
      return samples_that_fit(small, use_of(large), memory.available());
    } catch (const std::exception&) {  // too large as well; the first error is the one to report
    }
  }
  return std::nullopt;
}

}  // namespace millrace::train
