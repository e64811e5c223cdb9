// Reads the caching allocator's statistics.
#include "strategies/torch/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace millrace::train {
namespace {

class CachedMemory final : public DeviceMemory {
 public:
  explicit CachedMemory(torch::Device device)
      : allocator_(*at::getDeviceAllocator(device.type())), index_(device.index()) {}
  void reset() override {
    allocator_.emptyCache();
    allocator_.resetPeakStats(index_);
  }
  std::uint64_t peak() const override {
    return static_cast<std::uint64_t>(allocator_.getDeviceStats(index_).allocated_bytes[kAll].peak);
  }
  std::uint64_t available() const override {
    const auto reserved = allocator_.getDeviceStats(index_).reserved_bytes[kAll].current;
    return allocator_.getMemoryInfo(index_).first + static_cast<std::uint64_t>(reserved);
  }

 private:
  static constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

  c10::DeviceAllocator& allocator_;
  c10::DeviceIndex index_;
};

}  // namespace

std::unique_ptr<DeviceMemory> make_device_memory(torch::Device device) {
  return std::make_unique<CachedMemory>(device);
}

}  // namespace millrace::train
