// Stand-in for libmillrace_cuda.so: the module's own handling of devices on a CUDA runtime that
// only records on which devices it would have created contexts.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "strategies/torch/cuda_api.h"

namespace {

constexpr int kDevices = 3;
thread_local int current = 0;
std::mutex mutex;
std::set<int>& contexts() {
  static std::set<int> all;
  return all;
}

void touch() {
  const std::lock_guard lock(mutex);
  contexts().insert(current);
}

}  // namespace

extern "C" {

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return cudaErrorInvalidDevice;
  current = device;
  touch();  // since CUDA 12
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned) {
  touch();
  *memory = std::malloc(size);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  touch();
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

/// Returns bit d for device d.
MILLRACE_PRIVATE_API unsigned fake_cuda_contexts() {
  const std::lock_guard lock(mutex);
  unsigned bits = 0;
  for (const int device : contexts()) bits |= 1u << static_cast<unsigned>(device);
  return bits;
}
/// Does what an event's destructor does after it has visited its own device: it goes back.
MILLRACE_PRIVATE_API void fake_cuda_restore() { cudaSetDevice(current); }

int millrace_cuda_device_count(char*, std::size_t) { return kDevices; }
void millrace_cuda_device_name(int device, char* name, std::size_t capacity) {
  std::snprintf(name, capacity, "stand-in %d", device);
}
}
