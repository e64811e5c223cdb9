// Launchers of the native ops' CUDA kernels. They take device pointers to contiguous memory and a
// stream, and are independent of LibTorch. T: float or double. Each returns the launch's status.
#pragma once

#include <cuda_runtime_api.h>

#include "models/native/geometry.h"

namespace millrace::train::native {

/// `bias` may be null.
template <class T>
cudaError_t launch_conv(const ConvGeometry& geometry, const T* input, const T* weight,
                        const T* bias, T* output, cudaStream_t stream);
template <class T>
cudaError_t launch_conv_input_gradient(const ConvGeometry& geometry, const T* gradient,
                                       const T* weight, T* input, cudaStream_t stream);
template <class T>
cudaError_t launch_conv_weight_gradient(const ConvGeometry& geometry, const T* input,
                                        const T* gradient, T* weight, cudaStream_t stream);
template <class T>
cudaError_t launch_conv_bias_gradient(const ConvGeometry& geometry, const T* gradient, T* bias,
                                      cudaStream_t stream);
/// `winners`: row * width + column in the input, for every output.
template <class T>
cudaError_t launch_max_pool(const PoolGeometry& geometry, const T* input, T* output,
                            std::int32_t* winners, cudaStream_t stream);
template <class T>
cudaError_t launch_max_pool_gradient(const PoolGeometry& geometry, const T* gradient,
                                     const std::int32_t* winners, T* input, cudaStream_t stream);

/// Copies words of `tables`, which hold 256 per channel, to the images. Word: std::uint16_t or
/// std::uint32_t.
template <class Word>
cudaError_t launch_normalize(const NormalizeGeometry& geometry, const std::uint8_t* levels,
                             const Word* tables, Word* images, cudaStream_t stream);

/// Adds to `count` the rows of `logits` (rows x classes) whose first largest value is at the row's
/// label.
cudaError_t launch_count_correct(std::int64_t rows, std::int64_t classes, const float* logits,
                                 const std::int64_t* labels, std::int64_t* count,
                                 cudaStream_t stream);

}  // namespace millrace::train::native
