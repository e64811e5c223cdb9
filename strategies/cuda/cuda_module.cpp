// Everything that must link against LibTorch's CUDA libraries. Loading this library also registers
// CUDA with torch. It is compiled wherever MILLRACE_CUDA is on. No machine of the project's CI has
// a GPU, so it has been compiled and linked there, but not run.
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <cstdio>

#include "strategies/torch/cuda_api.h"

int millrace_cuda_device_count(char* reason, std::size_t capacity) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();  // clears the error, so that torch does not report it again
  std::snprintf(reason, capacity, "%s",
                status == cudaSuccess ? "the driver lists no device" : cudaGetErrorString(status));
  return 0;
}

void millrace_cuda_device_name(int device, char* name, std::size_t capacity) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device);
  std::snprintf(name, capacity, "%s", status == cudaSuccess ? properties.name : "unknown device");
}

void millrace_cuda_bus_id(int device, char* id, std::size_t capacity) {
  if (cudaDeviceGetPCIBusId(id, static_cast<int>(capacity), device) == cudaSuccess) return;
  cudaGetLastError();
  id[0] = '\0';
}

std::uint64_t millrace_cuda_peak_bytes(int device) {
  using c10::CachingAllocator::StatType;
  if (!c10::cuda::CUDACachingAllocator::get()->initialized()) return 0;
  const auto stats =
      c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  const auto whole = static_cast<std::size_t>(StatType::AGGREGATE);
  return static_cast<std::uint64_t>(stats.allocated_bytes[whole].peak);
}
