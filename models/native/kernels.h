// The CPU's kernels of the native ops: convolution and max pooling.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "base/simd.h"
#include "models/native/conv_kernels.h"
#include "models/native/geometry.h"

namespace millrace::train::native {

// Interface through which kernels that are independent of LibTorch run on threads.

/// Work on tasks [begin, end). The result of a task does not depend on other tasks.
using Tasks = std::function<void(std::int64_t begin, std::int64_t end)>;
/// Runs tasks [0, count), divided in any way, on any number of threads. Returns when all are done.
using Parallel = std::function<void(std::int64_t count, const Tasks& tasks)>;

/// Common form of a convolution's forward pass and its backward pass to the input: a correlation of
/// an image with padding (cropped if negative) and with zeros inserted between pixels.
struct ConvPass {
  std::int64_t in = 1, out = 1, groups = 1;
  Pair image;  ///< size of the input
  Pair output;
  Pair kernel, stride, dilation, padding, insert;

  /// Returns the window that outputs of rows [row, row + rows) read.
  Window window(std::int64_t row, std::int64_t rows) const;
  /// Returns the rows per band, a multiple of `multiple`, so that packed blocks fit the L2 cache.
  std::int64_t band_rows(std::int64_t bytes_a_number, std::int64_t multiple) const;
};

ConvPass forward_pass(const ConvGeometry& geometry);
/// Returns the pass from output gradients to input gradients: with the kernel rotated, and the
/// stride's gaps filled with zeros.
ConvPass input_pass(const ConvGeometry& geometry);

/// Returns the weights in the order in which `correlate` reads them: tile after tile of output
/// channels (kChannelTiles), and in each tile [channel][ky][kx][output channel of the tile].
template <class T>
std::vector<T> tile_forward(const ConvGeometry& geometry, const T* weight);
template <class T>
std::vector<T> tile_turned(const ConvGeometry& geometry, const T* weight);

/// Memory for packed blocks.
template <class T>
class Block {
 public:
  explicit Block(std::int64_t count) : data_(allocate(count)) {}
  T* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  static T* allocate(std::int64_t count) {
    constexpr std::size_t kAlignment = 64;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    void* const data = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
    if (data == nullptr) throw std::bad_alloc();
    return static_cast<T*>(data);
  }

  std::unique_ptr<T, Free> data_;
};

// Convolution on the CPU, forward and backward, alone or fused with the ReLU and 2x2 max pooling
// that follow it in LeNet. Independent of LibTorch.
//
// Samples lie in the lanes of vectors (conv_kernels.h). A block of samples is packed in bands of
// rows that fit the L2 cache, and unpacked when it is done. Tensors with adjacent samples
// ("batch_last", stride 1 along the batch) are packed by plain copies; all others are transposed on
// the way.
//
// One task computes each output and each input gradient. Weight gradients are summed within fixed
// chunks of samples, then over the chunks in order. Results therefore do not depend on the number
// of threads. They do depend on the instruction set, because the order of sums follows the lanes.

/// Gradients that backward computes; null members are skipped. Overwrites weight and bias.
template <class T>
struct ConvGradients {
  View<T> input;
  T* weight = nullptr;
  T* bias = nullptr;
};

/// T: float or double. `weight` and `bias` (may be null) are contiguous.
template <class T>
void conv_forward(const ConvGeometry& geometry, const View<const T>& input, const T* weight,
                  const T* bias, const View<T>& output, const Parallel& parallel);

template <class T>
void conv_backward(const ConvGeometry& geometry, const View<const T>& input, const T* weight,
                   const View<const T>& gradient, const ConvGradients<T>& wanted,
                   const Parallel& parallel);

/// Returns whether the fused ops support a convolution: stride 1, padding within the kernel's
/// reach, and an output of at least 2x2.
bool can_fuse(const ConvGeometry& geometry);

/// max_pool2d(relu(conv2d(input)), 2): outputs have half the convolution's size; odd last rows and
/// columns are dropped. Of equal values the first pixel wins; NaN wins over numbers. If no value is
/// above 0, no gradient flows back.
struct ConvReluPool {
  ConvGeometry conv;

  /// Returns the size of the outputs in pixels.
  Pair pooled() const { return {conv.output.h / 2, conv.output.w / 2}; }
  /// Returns the bytes that record the winners, in an order private to the kernels. T: element
  /// type.
  template <class T>
  std::int64_t winner_bytes() const;
};

template <class T>
void conv_relu_pool_forward(const ConvReluPool& op, const View<const T>& input, const T* weight,
                            const T* bias, const View<T>& output, std::uint8_t* winners,
                            const Parallel& parallel);

template <class T>
void conv_relu_pool_backward(const ConvReluPool& op, const View<const T>& input, const T* weight,
                             const View<const T>& gradient, const std::uint8_t* winners,
                             const ConvGradients<T>& wanted, const Parallel& parallel);

// Inner loop of max pooling: one line of outputs.

/// One position of the windows: output i of the line reads in[i * step], if begin <= i < end.
template <class T>
struct PoolTap {
  const T* in;
  std::int64_t begin, end;
  std::int32_t index;  ///< index that output 0 records for it
};

template <class T>
struct PoolLine {
  const PoolTap<T>* taps;
  std::int64_t tap_count;
  std::int64_t step;
  std::int32_t index_step;  ///< difference between the indices of adjacent outputs
  std::int64_t count;       ///< number of outputs
  T* best;
  std::int32_t* winners;
};

template <class T>
using PoolLineKernel = void (*)(const PoolLine<T>& line);

/// Returns the kernel of one level, which the processor must support. T: float, double.
template <class T>
PoolLineKernel<T> pool_line_kernel(base::Simd level);

// Max pooling on the CPU, forward and backward. Independent of LibTorch.
//
// Computes a line of outputs at a time, tap by tap: a row of a plane or, if channels or samples are
// adjacent, all of them at one pixel. Of equal values the first position of the window (in
// row-major order) wins; NaN wins over numbers, and of several NaNs the last, as in PyTorch. One
// task sums each plane's gradient in the order of the outputs, so nothing depends on threads.

/// T: float or double. Writes `winners`: row * width + column in the input, for every output.
template <class T>
void max_pool_forward(const PoolGeometry& geometry, const View<const T>& input,
                      const View<T>& output, const View<std::int32_t>& winners,
                      const Parallel& parallel);

/// Overwrites all of `input`, the gradient of the input.
template <class T>
void max_pool_backward(const PoolGeometry& geometry, const View<const T>& gradient,
                       const View<const std::int32_t>& winners, const View<T>& input,
                       const Parallel& parallel);

}  // namespace millrace::train::native
