// Parses devices and sets process-wide switches of LibTorch.
#include "strategies/torch/device.h"

#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "millrace/error.h"

namespace millrace::train {

int device_index(const std::string& device) {
  constexpr std::string_view kCuda = "cuda";
  if (device == "cpu") return -1;
  if (device == kCuda) return 0;
  int index = -1;
  const char* const begin = device.data() + std::min(device.size(), kCuda.size() + 1);
  const char* const end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(begin, end, index);
  if (!device.starts_with("cuda:") || error != std::errc() || stop != end || index < 0 ||
      index > std::numeric_limits<c10::DeviceIndex>::max())
    throw UsageError("train.device=" + device + ": there is no such device",
                     "use cpu, cuda, cuda:N or simulated");
  return index;
}

std::optional<CudaLibrary> load_cuda(const StrategyOptions& options) {
  const int index = device_index(options.device);
  if (index < 0) return {};
  const bool replicas = options.strategy == "data_parallel";
  return CudaLibrary::load(options.device, index, replicas ? options.replicas : 1);
}

torch::Device torch_device(const std::string& device) {
  const int index = device_index(device);
  if (index < 0) return torch::kCPU;
  return torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
}

void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc's maximum
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

bool wants_channels_last(const StrategyOptions& options, torch::Device device) {
  const bool native = options.model_options.native_ops;
  if (options.channels_last == "on" && native)
    throw UsageError("train.channels_last=on with model.ops=native: our own ops work on planes",
                     "set train.channels_last=auto, or model.ops=torch");
  if (options.channels_last != "auto") return options.channels_last == "on";
  return !native && (device.is_cpu() || options.amp != "off" || options.tf32 != "off");
}

void allow_tf32(const std::string& what) {
  at::globalContext().setAllowTF32CuDNN(what != "off");
  at::globalContext().setAllowTF32CuBLAS(what == "on");
}

void prefer_channels_last(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : model.parameters()) {
    if (parameter.dim() != 4) continue;
    // Does not use contiguous(): with one channel it keeps strides that the gradients will not
    // have.
    const auto format = torch::MemoryFormat::ChannelsLast;
    torch::Tensor pixels =
        torch::empty(parameter.sizes(), parameter.options().memory_format(format));
    parameter.set_data(pixels.copy_(parameter));
  }
}

}  // namespace millrace::train
