// NCCL for a process group's CUDA tensors. Compiled where NCCL's header is found. Like the rest of
// this module, it has never run on the machines of the project's CI.
#include <nccl.h>

#include <chrono>
#include <cstdio>
#define USE_C10D_NCCL  // LibTorch was built with NCCL, and its header requires the macro
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "strategies/torch/cuda_api.h"

void millrace_cuda_add_nccl(c10d::ProcessGroup* group, c10d::Store* store, int device,
                            double timeout_s, char* reason, std::size_t capacity) {
  // ProcessGroupNCCL::Options holds NCCL's own structures, so header and library must agree on
  // their version.
  const std::uint64_t theirs = torch::cuda::nccl::version();
  const std::uint64_t ours =
      std::uint64_t{NCCL_MAJOR} << 32 | std::uint64_t{NCCL_MINOR} << 16 | std::uint64_t{NCCL_PATCH};
  if (theirs >> 16 != ours >> 16) {
    std::snprintf(reason, capacity, "built with NCCL %d.%d, LibTorch has %d.%d", NCCL_MAJOR,
                  NCCL_MINOR, static_cast<int>(theirs >> 32),
                  static_cast<int>(theirs >> 16 & 0xffff));
    return;
  }
  try {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1e3));
    const auto shared = c10::intrusive_ptr<c10d::Store>::reclaim_copy(store);
    const auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<c10d::PrefixStore>("nccl", shared), group->getRank(), group->getSize(),
        options);
    group->setBoundDeviceId(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
    group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL,
                      c10::intrusive_ptr<c10d::Backend>(nccl));
  } catch (const std::exception& error) {
    std::snprintf(reason, capacity, "%.*s", static_cast<int>(capacity) - 1, error.what());
  }
}
