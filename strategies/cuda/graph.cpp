// A CUDA graph captured by LibTorch, which gives it a private memory pool and makes replays read
// the default generator's seed and offset. Like the rest of this module, it has never run on the
// machines of the project's CI.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <exception>
#include <optional>

#include "strategies/cuda/cuda_api.h"
#include "strategies/torch/cuda_library.h"

namespace millrace::train {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(int device) : device_(static_cast<c10::DeviceIndex>(device)) {}
  ~CudaGraph() override {
    if (!graph_) return;
    try {
      const c10::cuda::CUDAGuard guard(device_);
      C10_CUDA_CHECK(cudaDeviceSynchronize());  // a running replay uses the graph's memory
    } catch (const std::exception&) {           // then no replay is running
    }
  }

  std::vector<at::Tensor> capture(const Work& work) override {
    const c10::cuda::CUDAGuard guard(device_);
    // The graph's pool starts empty: the allocator's cached memory must go to make room.
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    c10::cuda::CUDACachingAllocator::emptyCache();
    graph_.emplace();
    graph_->capture_begin();  // also registers the device's default generator
    std::vector<at::Tensor> results;
    try {
      results = work();
    } catch (...) {
      try {
        graph_->capture_end();
      } catch (const std::exception&) {  // the first error is the one to report
      }
      throw;
    }
    graph_->capture_end();
    return results;
  }

  void replay() override { graph_->replay(); }

 private:
  c10::DeviceIndex device_;
  std::optional<at::cuda::CUDAGraph> graph_;
};

}  // namespace
}  // namespace millrace::train

millrace::train::DeviceGraph* millrace_cuda_new_graph(int device) {
  return new millrace::train::CudaGraph(device);
}
