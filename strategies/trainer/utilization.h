// How busy NVIDIA's driver says that a device is: read through NVML while a run goes on, where the
// library is there. Free of LibTorch and of CUDA.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace millrace::train {

/// Means over the samples taken.
struct Utilization {
  double gpu = 0;     ///< part of the time in which a kernel ran, 0..1
  double memory = 0;  ///< part of the time in which device memory was read or written, 0..1
  std::uint64_t samples = 0;
};

class UtilizationSampler {
 public:
  /// Begins to sample the device with this PCI bus id ("0000:1b:00.0") every `interval_s` seconds,
  /// on a thread of its own. Without NVML, or where it does not know the device, does nothing.
  explicit UtilizationSampler(const std::string& bus_id, double interval_s = 0.2,
                              const char* library = "libnvidia-ml.so.1");
  ~UtilizationSampler();
  UtilizationSampler(const UtilizationSampler&) = delete;
  UtilizationSampler& operator=(const UtilizationSampler&) = delete;

  /// Ends it. Empty where there was nothing to read.
  std::optional<Utilization> stop();

 private:
  struct Nvml;

  void sample(double interval_s);

  void* device_ = nullptr;      ///< NVML's handle
  std::unique_ptr<Nvml> nvml_;  ///< its functions; the library itself stays loaded
  std::mutex mutex_;
  std::condition_variable end_;
  bool stop_ = false;
  Utilization sum_;
  std::thread thread_;
};

}  // namespace millrace::train
