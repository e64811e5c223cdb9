// A CUDA graph captured by LibTorch, which gives it a private memory pool and makes replays read
// the default generator's seed and offset. Like the rest of this module, it has never run on the
// machines of the project's CI.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "strategies/torch/cuda_api.h"
#include "strategies/torch/cuda_library.h"

namespace millrace::train {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  /// `pool`: set by the capture, for siblings.
  explicit CudaGraph(c10::DeviceIndex device,
                     std::shared_ptr<c10::MempoolId_t> pool = std::make_shared<c10::MempoolId_t>())
      : device_(device), pool_(std::move(pool)) {}
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
    graph_->capture_begin(*pool_);  // also registers the device's default generator
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
    *pool_ = graph_->pool();
    return results;
  }

  void replay() override { graph_->replay(); }
  std::unique_ptr<DeviceGraph> sibling() override {
    return std::make_unique<CudaGraph>(device_, pool_);
  }

 private:
  c10::DeviceIndex device_;
  std::shared_ptr<c10::MempoolId_t> pool_;  ///< {0, 0}: the first capture makes one
  std::optional<at::cuda::CUDAGraph> graph_;
};

}  // namespace
}  // namespace millrace::train

millrace::train::DeviceGraph* millrace_cuda_new_graph(int device) {
  return new millrace::train::CudaGraph(static_cast<c10::DeviceIndex>(device));
}
