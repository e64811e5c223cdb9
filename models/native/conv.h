// Convolution on the CPU, forward and backward, and in one with the ReLU and 2x2 max pooling that
// follow it in LeNet. Free of LibTorch.
//
// Samples lie in the lanes of vectors (conv_kernels.h): a block of them is packed, a band of rows
// at a time that the L2 cache holds, and unpacked when it is done. Tensors whose samples lie side
// by side ("batch_last", strides 1 for the batch) are packed by plain copies, all others are
// transposed on the way.
//
// Every output and input gradient is computed by one task. Weights' gradients are summed within
// fixed chunks of samples, then over the chunks in their order. So results don't depend on the
// number of threads; they do on the instruction set (the order of sums follows the lanes).
#pragma once

#include "models/native/geometry.h"
#include "models/native/parallel.h"

namespace millrace::train::native {

/// What backward is asked for; null is not computed. Weight and bias are overwritten.
template <class T>
struct ConvGradients {
  View<T> input;
  T* weight = nullptr;
  T* bias = nullptr;
};

/// T: float or double. `weight` and `bias` (or null) are contiguous.
template <class T>
void conv_forward(const ConvGeometry& geometry, const View<const T>& input, const T* weight,
                  const T* bias, const View<T>& output, const Parallel& parallel);

template <class T>
void conv_backward(const ConvGeometry& geometry, const View<const T>& input, const T* weight,
                   const View<const T>& gradient, const ConvGradients<T>& wanted,
                   const Parallel& parallel);

/// Whether the fused ops take a convolution: stride 1, padding within the kernel's reach, and an
/// output of at least 2x2.
bool can_fuse(const ConvGeometry& geometry);

/// max_pool2d(relu(conv2d(input)), 2): outputs are half the convolution's, odd last rows and
/// columns left out. Of equals the first pixel wins; NaN wins over numbers. Where nothing is above
/// 0, no gradient flows back.
struct ConvReluPool {
  ConvGeometry conv;

  /// Pixels of an output.
  Pair pooled() const { return {conv.output.h / 2, conv.output.w / 2}; }
  /// Bytes for who won, in an order of the kernels' own; T: the elements' type.
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

}  // namespace millrace::train::native
