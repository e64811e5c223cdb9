// CUDA kernels of the native ops. One thread computes one element of images
// (models/native/index.h). One block computes one element of weights: its threads' sums are added
// in a tree of fixed shape. Only whole numbers are added by atomics, so that runs repeat bit for
// bit (contract Determinism).
//
// A test compiles this file for the host, with a cuda_runtime_api.h of its own that runs a grid's
// threads there and defines MILLRACE_LAUNCH (tests/torch/host_cuda).
#include <algorithm>

#include "models/native/index.h"
#include "strategies/cuda/native_kernels.h"

#if defined(__CUDACC__)
#define MILLRACE_LAUNCH(kernel, blocks, threads, stream, ...) \
  kernel<<<blocks, threads, 0, stream>>>(__VA_ARGS__)
#endif

namespace millrace::train::native {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 1 << 20;  // kernels loop over longer work

int blocks_for(std::int64_t elements) {
  return static_cast<int>(std::min((elements + kThreads - 1) / kThreads, kMaxBlocks));
}

__device__ std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::int64_t index_step() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

/// Adds up the values of the block's threads. Thread 0 receives the sum.
template <class T>
__device__ T block_sum(T value) {
  __shared__ T shares[kThreads];
  shares[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shares[threadIdx.x] += shares[threadIdx.x + half];
    __syncthreads();
  }
  const T sum = shares[0];
  __syncthreads();  // until here, threads may still read this element's sums
  return sum;
}

template <class T>
__global__ void conv_kernel(ConvGeometry g, std::int64_t count, const T* input, const T* weight,
                            const T* bias, T* output) {
  for (std::int64_t i = first_index(); i < count; i += index_step())
    output[i] = conv_output(g, i, input, weight, bias);
}

template <class T>
__global__ void conv_input_kernel(ConvGeometry g, std::int64_t count, const T* gradient,
                                  const T* weight, T* input) {
  for (std::int64_t i = first_index(); i < count; i += index_step())
    input[i] = conv_input_gradient(g, i, gradient, weight);
}

template <class T>
__global__ void conv_weight_kernel(ConvGeometry g, std::int64_t count, const T* input,
                                   const T* gradient, T* weight) {
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const T sum = block_sum(conv_weight_gradient(g, i, input, gradient, threadIdx.x, blockDim.x));
    if (threadIdx.x == 0) weight[i] = sum;
  }
}

template <class T>
__global__ void conv_bias_kernel(ConvGeometry g, const T* gradient, T* bias) {
  for (std::int64_t i = blockIdx.x; i < g.out; i += gridDim.x) {
    const T sum = block_sum(conv_bias_gradient(g, i, gradient, threadIdx.x, blockDim.x));
    if (threadIdx.x == 0) bias[i] = sum;
  }
}

template <class T>
__global__ void max_pool_kernel(PoolGeometry g, std::int64_t count, const T* input, T* output,
                                std::int32_t* winners) {
  const std::int64_t outputs = g.output.h * g.output.w;
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    const std::int32_t winner = pool_winner(g, i, input);
    winners[i] = winner;
    output[i] = input[i / outputs * g.input.h * g.input.w + winner];
  }
}

template <class T>
__global__ void max_pool_gradient_kernel(PoolGeometry g, std::int64_t count, const T* gradient,
                                         const std::int32_t* winners, T* input) {
  for (std::int64_t i = first_index(); i < count; i += index_step())
    input[i] = pool_input_gradient(g, i, gradient, winners);
}

/// One block decides about a row at a time.
__global__ void count_correct_kernel(std::int64_t rows, std::int64_t classes, const float* logits,
                                     const std::int64_t* labels, unsigned long long* count) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t label = labels[row];
    int beaten = label < 0 || label >= classes;
    if (!beaten)
      for (std::int64_t i = threadIdx.x; i < classes; i += blockDim.x)
        beaten |= is_beaten(logits + row * classes, label, i);
    if (!__syncthreads_or(beaten) && threadIdx.x == 0) atomicAdd(count, 1ull);
  }
}

template <class Word>
__global__ void normalize_kernel(NormalizeGeometry g, std::int64_t count,
                                 const std::uint8_t* levels, const Word* tables, Word* images) {
  for (std::int64_t i = first_index(); i < count; i += index_step())
    images[i] = normalized_element(g, i, levels, tables);
}

}  // namespace

template <class T>
cudaError_t launch_conv(const ConvGeometry& g, const T* input, const T* weight, const T* bias,
                        T* output, cudaStream_t stream) {
  const std::int64_t count = g.batch * g.out * g.output.h * g.output.w;
  if (count == 0) return cudaSuccess;
  MILLRACE_LAUNCH(conv_kernel, blocks_for(count), kThreads, stream, g, count, input, weight, bias,
                  output);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_conv_input_gradient(const ConvGeometry& g, const T* gradient, const T* weight,
                                       T* input, cudaStream_t stream) {
  const std::int64_t count = g.batch * g.in * g.input.h * g.input.w;
  if (count == 0) return cudaSuccess;
  MILLRACE_LAUNCH(conv_input_kernel, blocks_for(count), kThreads, stream, g, count, gradient,
                  weight, input);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_conv_weight_gradient(const ConvGeometry& g, const T* input, const T* gradient,
                                        T* weight, cudaStream_t stream) {
  const std::int64_t count = g.weights();
  MILLRACE_LAUNCH(conv_weight_kernel, static_cast<int>(std::min(count, kMaxBlocks)), kThreads,
                  stream, g, count, input, gradient, weight);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_conv_bias_gradient(const ConvGeometry& g, const T* gradient, T* bias,
                                      cudaStream_t stream) {
  MILLRACE_LAUNCH(conv_bias_kernel, static_cast<int>(std::min(g.out, kMaxBlocks)), kThreads, stream,
                  g, gradient, bias);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_max_pool(const PoolGeometry& g, const T* input, T* output, std::int32_t* winners,
                            cudaStream_t stream) {
  const std::int64_t count = g.batch * g.channels * g.output.h * g.output.w;
  if (count == 0) return cudaSuccess;
  MILLRACE_LAUNCH(max_pool_kernel, blocks_for(count), kThreads, stream, g, count, input, output,
                  winners);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_max_pool_gradient(const PoolGeometry& g, const T* gradient,
                                     const std::int32_t* winners, T* input, cudaStream_t stream) {
  const std::int64_t count = g.batch * g.channels * g.input.h * g.input.w;
  if (count == 0) return cudaSuccess;
  MILLRACE_LAUNCH(max_pool_gradient_kernel, blocks_for(count), kThreads, stream, g, count, gradient,
                  winners, input);
  return cudaGetLastError();
}

template <class Word>
cudaError_t launch_normalize(const NormalizeGeometry& g, const std::uint8_t* levels,
                             const Word* tables, Word* images, cudaStream_t stream) {
  const std::int64_t count = g.elements();
  if (count == 0) return cudaSuccess;
  MILLRACE_LAUNCH(normalize_kernel, blocks_for(count), kThreads, stream, g, count, levels, tables,
                  images);
  return cudaGetLastError();
}

cudaError_t launch_count_correct(std::int64_t rows, std::int64_t classes, const float* logits,
                                 const std::int64_t* labels, std::int64_t* count,
                                 cudaStream_t stream) {
  static_assert(sizeof(unsigned long long) == sizeof(std::int64_t));  // what atomicAdd() takes
  if (rows == 0) return cudaSuccess;
  constexpr std::int64_t kWarp = 32;
  const int threads = classes > kWarp ? kThreads : kWarp;
  MILLRACE_LAUNCH(count_correct_kernel, static_cast<int>(std::min(rows, kMaxBlocks)), threads,
                  stream, rows, classes, logits, labels,
                  reinterpret_cast<unsigned long long*>(count));
  return cudaGetLastError();
}

template cudaError_t launch_normalize(const NormalizeGeometry&, const std::uint8_t*,
                                      const std::uint16_t*, std::uint16_t*, cudaStream_t);
template cudaError_t launch_normalize(const NormalizeGeometry&, const std::uint8_t*,
                                      const std::uint32_t*, std::uint32_t*, cudaStream_t);

#define MILLRACE_INSTANTIATE(T)                                                                    \
  template cudaError_t launch_conv(const ConvGeometry&, const T*, const T*, const T*, T*,          \
                                   cudaStream_t);                                                  \
  template cudaError_t launch_conv_input_gradient(const ConvGeometry&, const T*, const T*, T*,     \
                                                  cudaStream_t);                                   \
  template cudaError_t launch_conv_weight_gradient(const ConvGeometry&, const T*, const T*, T*,    \
                                                   cudaStream_t);                                  \
  template cudaError_t launch_conv_bias_gradient(const ConvGeometry&, const T*, T*, cudaStream_t); \
  template cudaError_t launch_max_pool(const PoolGeometry&, const T*, T*, std::int32_t*,           \
                                       cudaStream_t);                                              \
  template cudaError_t launch_max_pool_gradient(const PoolGeometry&, const T*,                     \
                                                const std::int32_t*, T*, cudaStream_t);
MILLRACE_INSTANTIATE(float)
MILLRACE_INSTANTIATE(double)
#undef MILLRACE_INSTANTIATE

}  // namespace millrace::train::native
