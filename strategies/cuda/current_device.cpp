// The calling thread's device, and page-locked memory, whose allocation creates a context there.
// Independent of LibTorch, so that a test can replace CUDA's runtime. Nothing sets the device back:
// cudaSetDevice() creates a context as well, and the thread is ours.
#include <cuda_runtime_api.h>

#include "strategies/torch/cuda_api.h"

void millrace_cuda_use(int device) {
  if (cudaSetDevice(device) != cudaSuccess) cudaGetLastError();  // the next call reports it
}

void* millrace_cuda_pin(std::size_t size, int device) {
  millrace_cuda_use(device);
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, size, cudaHostAllocPortable) == cudaSuccess) return memory;
  cudaGetLastError();
  return nullptr;
}

void millrace_cuda_unpin(void* memory, int device) {
  millrace_cuda_use(device);
  cudaFreeHost(memory);
}
