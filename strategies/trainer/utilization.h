// Utilisation of a device as NVIDIA's driver reports it, sampled through NVML during a run if the
// library is installed. Independent of LibTorch and CUDA.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/private_api.h"

namespace millrace::train {

/// Means over the samples taken.
struct Utilization {
  double gpu = 0;     ///< share of the time in which a kernel ran, 0..1
  double memory = 0;  ///< share of the time in which device memory was read or written, 0..1
  std::uint64_t samples = 0;
};

class MILLRACE_PRIVATE_API UtilizationSampler {
 public:
  /// Samples the device with this PCI bus id ("0000:1b:00.0") every `interval_s` seconds, on its
  /// own thread. Does nothing without NVML, or if NVML does not know the device.
  explicit UtilizationSampler(const std::string& bus_id, double interval_s = 0.2,
                              const char* library = "libnvidia-ml.so.1");
  ~UtilizationSampler();
  UtilizationSampler(const UtilizationSampler&) = delete;
  UtilizationSampler& operator=(const UtilizationSampler&) = delete;

  /// Stops sampling. Empty if nothing could be read.
  std::optional<Utilization> stop();

 private:
  struct Nvml;

  void sample(double interval_s);

  void* device_ = nullptr;      ///< handle of NVML
  std::unique_ptr<Nvml> nvml_;  ///< functions only; the library stays loaded
  std::mutex mutex_;
  std::condition_variable end_;
  bool stop_ = false;
  Utilization sum_;
  std::thread thread_;
};

}  // namespace millrace::train
