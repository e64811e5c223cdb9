// Loads NVML and samples a device's utilisation.
#include "strategies/trainer/utilization.h"

#include <dlfcn.h>

#include <chrono>
#include <type_traits>

namespace millrace::train {
/// NVML's functions as used here; they return 0 for success.
struct UtilizationSampler::Nvml {
  /// Layout of nvmlUtilization_t.
  struct Rates {
    unsigned gpu;  ///< in percent
    unsigned memory;
  };

  int (*init)();
  int (*handle_by_bus_id)(const char*, void**);
  int (*rates)(void*, Rates*);

  /// Returns null if the library or a function is missing. Never unloads it.
  static std::unique_ptr<Nvml> load(const char* library) {
    void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return nullptr;
    auto nvml = std::make_unique<Nvml>();
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      return function != nullptr;
    };
    if (find(nvml->init, "nvmlInit_v2") &&
        find(nvml->handle_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2") &&
        find(nvml->rates, "nvmlDeviceGetUtilizationRates") && nvml->init() == 0)
      return nvml;
    return nullptr;
  }
};

UtilizationSampler::UtilizationSampler(const std::string& bus_id, double interval_s,
                                       const char* library) {
  if (bus_id.empty()) return;
  nvml_ = Nvml::load(library);
  if (nvml_ == nullptr || nvml_->handle_by_bus_id(bus_id.c_str(), &device_) != 0) return;
  thread_ = std::thread([this, interval_s] { sample(interval_s); });
}

UtilizationSampler::~UtilizationSampler() { static_cast<void>(stop()); }

void UtilizationSampler::sample(double interval_s) {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    Nvml::Rates rates{};
    if (nvml_->rates(device_, &rates) == 0) {
      sum_.gpu += rates.gpu * 0.01;
      sum_.memory += rates.memory * 0.01;
      ++sum_.samples;
    }
    end_.wait_for(lock, std::chrono::duration<double>(interval_s), [this] { return stop_; });
  }
}

std::optional<Utilization> UtilizationSampler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  end_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (sum_.samples == 0) return std::nullopt;
  const auto count = static_cast<double>(sum_.samples);
  return Utilization{sum_.gpu / count, sum_.memory / count, sum_.samples};
}

}  // namespace millrace::train
