// Runs CUDA kernels on the host: a file that includes this header instead of CUDA's, and starts its
// kernels by MILLRACE_LAUNCH, is compiled as C++. Reads and writes outside of an array are then
// found by AddressSanitizer, and results can be compared without a device.
//
// Blocks run one after another, threads of a block in the order of Grid::order. A thread runs until
// it ends or waits in __syncthreads(); it then keeps its stack while the others of its block run
// (ucontext). What a kernel reads from another thread without a barrier between is therefore
// missing in one order or the other.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define __host__
#define __device__
#define __global__
#define __shared__ static  // one block at a time

using cudaError_t = int;
using cudaStream_t = void*;
inline constexpr cudaError_t cudaSuccess = 0;
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

struct Index {
  unsigned x = 0;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;

namespace host_cuda {

enum class Order { forward, backward };

class Grid {
 public:
  static Grid& instance() {
    static Grid grid;
    return grid;
  }
  Order order = Order::forward;
  std::uint64_t launches = 0;  ///< kernels that were started
  bool diverged = false;       ///< threads of a block have ended while others waited for them

  void run(unsigned blocks, unsigned threads, const std::function<void()>& body) {
    ++launches;
    gridDim.x = blocks;
    blockDim.x = threads;
    body_ = &body;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) run_block(threads);
  }

  /// Waits for the block's other threads. Returns whether any of them gave a value other than 0.
  int wait(int value) {
    any_next_ = any_next_ || value != 0;
    fibers_[current_]->waits = true;
    leave(*fibers_[current_], /*ends=*/false);
    return any_;
  }

 private:
  static constexpr std::size_t kStack = 128 << 10;

  struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStack);
    unsigned thread = 0;
    bool waits = false;
    void* fake_stack = nullptr;
  };

  void run_block(unsigned threads) {
    std::vector<std::size_t> waiting, spare;
    any_next_ = false;
    for (unsigned i = 0; i < threads; ++i) {
      if (spare.empty()) spare.push_back(waiting.size());  // every stack before it is taken
      if (spare.back() == fibers_.size()) fibers_.push_back(std::make_unique<Fiber>());
      Fiber& fiber = *fibers_[spare.back()];
      fiber.thread = order == Order::forward ? i : threads - 1 - i;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStack;
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, &Grid::begin, 0);
      if (resume(spare.back())) {
        waiting.push_back(spare.back());
        spare.pop_back();
      }
    }
    if (!waiting.empty() && waiting.size() != threads) diverged = true;
    while (!waiting.empty()) {
      any_ = any_next_;
      any_next_ = false;
      std::vector<std::size_t> still;
      for (const std::size_t index : waiting)
        if (resume(index)) still.push_back(index);
      if (!still.empty() && still.size() != waiting.size()) diverged = true;
      waiting = std::move(still);
    }
  }

  /// Runs a thread until it ends or waits. Returns whether it waits.
  bool resume(std::size_t index) {
    current_ = index;
    Fiber& fiber = *fibers_[index];
    fiber.waits = false;
    threadIdx.x = fiber.thread;
#if defined(__SANITIZE_ADDRESS__)
    void* own = nullptr;
    __sanitizer_start_switch_fiber(&own, fiber.stack.get(), kStack);
#endif
    swapcontext(&main_, &fiber.context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(own, nullptr, nullptr);
#endif
    return fiber.waits;
  }

  static void begin() {
    Grid& grid = instance();
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &grid.main_stack_, &grid.main_size_);
#endif
    (*grid.body_)();
    grid.leave(*grid.fibers_[grid.current_], /*ends=*/true);
  }

  void leave(Fiber& fiber, [[maybe_unused]] bool ends) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(ends ? nullptr : &fiber.fake_stack, main_stack_, main_size_);
#endif
    swapcontext(&fiber.context, &main_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fiber.fake_stack, &main_stack_, &main_size_);
#endif
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::size_t current_ = 0;
  ucontext_t main_{};
  const std::function<void()>* body_ = nullptr;
  bool any_ = false, any_next_ = false;
  [[maybe_unused]] const void* main_stack_ = nullptr;
  [[maybe_unused]] std::size_t main_size_ = 0;
};

}  // namespace host_cuda

inline int __syncthreads_or(int value) { return host_cuda::Grid::instance().wait(value); }
inline void __syncthreads() { __syncthreads_or(0); }
template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}

#define MILLRACE_LAUNCH(kernel, blocks, threads, stream, ...)                                     \
  (static_cast<void>(stream),                                                                     \
   host_cuda::Grid::instance().run(static_cast<unsigned>(blocks), static_cast<unsigned>(threads), \
                                   [&] { kernel(__VA_ARGS__); }))
