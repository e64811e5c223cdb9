// NCCL's exchanges between the devices of this process, through LibTorch's communicators. Like the
// rest of this module, it has never run on the machines of the project's CI.
#include <ATen/ATen.h>
#include <torch/csrc/cuda/nccl.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "strategies/torch/cuda_api.h"
#include "strategies/torch/cuda_library.h"

namespace millrace::train {
namespace {

/// ncclReduce uses a ring that is laid out when the communicators are made and ends at the first
/// device: every element is added in the ring's order. Each device's part runs on its current
/// stream.
class NcclDevices final : public DeviceGroup {
 public:
  void sum(std::vector<at::Tensor>& vectors) override { torch::cuda::nccl::reduce(vectors); }
  void broadcast(std::vector<at::Tensor>& vectors) override {
    torch::cuda::nccl::broadcast(vectors);
  }
};

}  // namespace
}  // namespace millrace::train

millrace::train::DeviceGroup* millrace_cuda_new_group(int devices, char* reason,
                                                      std::size_t capacity) {
  try {
    // The first sum over these devices creates their communicators.
    std::vector<at::Tensor> zeros;
    for (int device = 0; device < devices; ++device)
      zeros.push_back(at::zeros(
          {1}, at::TensorOptions(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)))));
    auto group = std::make_unique<millrace::train::NcclDevices>();
    group->sum(zeros);
    return group.release();
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    std::snprintf(reason, capacity, "%s", what.substr(0, what.find('\n')).c_str());
  } catch (const std::exception& error) {
    std::snprintf(reason, capacity, "%s", error.what());
  }
  return nullptr;
}
