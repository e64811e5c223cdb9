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
  MemoryUse uses[2];
  try {
    for (int i = 0; i < 2; ++i) {
      uses[i].samples = too_many / (i == 0 ? 8 : 4);
      if (uses[i].samples < 2) return std::nullopt;  // batch normalisation needs two samples
      memory.reset();
      step(uses[i].samples);
      uses[i].bytes = memory.peak();
    }
    return samples_that_fit(uses[0], uses[1], memory.available());
  } catch (const std::exception&) {  // the first error is the one to report
    return std::nullopt;
  }
}

}  // namespace millrace::train
