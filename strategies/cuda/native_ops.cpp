// Native ops for CUDA tensors: makes tensors contiguous, allocates results, launches kernels. It is
// compiled and linked where MILLRACE_CUDA is on. The kernels' arithmetic is tested on the host
// (tests/torch/native_index_test.cpp); launches need a GPU.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "models/native/ops.h"
#include "strategies/cuda/native_kernels.h"

namespace millrace::train::native {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// Calls `work` with a value of the tensor's element type and the stream to launch on.
template <class Work>
void launch(const Tensor& tensor, const Work& work) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  if (tensor.scalar_type() == at::kFloat)
    C10_CUDA_CHECK(work(float{}, stream));
  else
    C10_CUDA_CHECK(work(double{}, stream));
}

Tensor conv2d_cuda(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                   std::int64_t groups) {
  const bool has_bias = bias.has_value() && bias->defined();
  const Tensor rows = has_bias ? bias->contiguous() : Tensor();
  const ConvGeometry g = conv_geometry(input, weight, rows, stride, padding, dilation, groups);
  const Tensor images = input.contiguous();
  const Tensor weights = weight.contiguous();
  Tensor output = at::empty({g.batch, g.out, g.output.h, g.output.w}, input.options());
  launch(input, [&](auto type, cudaStream_t stream) {
    using T = decltype(type);
    return launch_conv(g, images.const_data_ptr<T>(), weights.const_data_ptr<T>(),
                       has_bias ? rows.const_data_ptr<T>() : nullptr, output.mutable_data_ptr<T>(),
                       stream);
  });
  return output;
}

std::tuple<Tensor, Tensor, Tensor> conv2d_backward_cuda(const Tensor& gradient, const Tensor& input,
                                                        const Tensor& weight, IntArrayRef stride,
                                                        IntArrayRef padding, IntArrayRef dilation,
                                                        std::int64_t groups,
                                                        std::array<bool, 3> wanted) {
  const ConvGeometry g = conv_geometry(input, weight, {}, stride, padding, dilation, groups);
  const Tensor images = input.contiguous();
  const Tensor weights = weight.contiguous();
  const Tensor deltas = gradient.contiguous();
  Tensor of_input, of_weight, of_bias;
  if (wanted[0]) {
    of_input = at::empty(input.sizes(), input.options());
    launch(input, [&](auto type, cudaStream_t stream) {
      using T = decltype(type);
      return launch_conv_input_gradient(g, deltas.const_data_ptr<T>(), weights.const_data_ptr<T>(),
                                        of_input.mutable_data_ptr<T>(), stream);
    });
  }
  if (wanted[1]) {
    of_weight = at::empty(weight.sizes(), weight.options());
    launch(input, [&](auto type, cudaStream_t stream) {
      using T = decltype(type);
      return launch_conv_weight_gradient(g, images.const_data_ptr<T>(), deltas.const_data_ptr<T>(),
                                         of_weight.mutable_data_ptr<T>(), stream);
    });
  }
  if (wanted[2]) {
    of_bias = at::empty({g.out}, weight.options());
    launch(input, [&](auto type, cudaStream_t stream) {
      using T = decltype(type);
      return launch_conv_bias_gradient(g, deltas.const_data_ptr<T>(), of_bias.mutable_data_ptr<T>(),
                                       stream);
    });
  }
  return {of_input, of_weight, of_bias};
}

std::tuple<Tensor, Tensor> max_pool2d_cuda(const Tensor& input, IntArrayRef kernel,
                                           IntArrayRef stride, IntArrayRef padding,
                                           IntArrayRef dilation) {
  const PoolGeometry g = pool_geometry(input, kernel, stride, padding, dilation);
  const Tensor images = input.contiguous();
  Tensor output = at::empty({g.batch, g.channels, g.output.h, g.output.w}, input.options());
  Tensor winners = at::empty(output.sizes(), input.options().dtype(at::kInt));
  launch(input, [&](auto type, cudaStream_t stream) {
    using T = decltype(type);
    return launch_max_pool(g, images.const_data_ptr<T>(), output.mutable_data_ptr<T>(),
                           winners.mutable_data_ptr<std::int32_t>(), stream);
  });
  return {output, winners};
}

Tensor max_pool2d_backward_cuda(const Tensor& gradient, const Tensor& winners, const Tensor& input,
                                IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                                IntArrayRef dilation) {
  const PoolGeometry g = pool_geometry(input, kernel, stride, padding, dilation);
  const Tensor deltas = gradient.contiguous();
  Tensor result = at::empty(input.sizes(), input.options());
  launch(input, [&](auto type, cudaStream_t stream) {
    using T = decltype(type);
    return launch_max_pool_gradient(g, deltas.const_data_ptr<T>(),
                                    winners.const_data_ptr<std::int32_t>(),
                                    result.mutable_data_ptr<T>(), stream);
  });
  return result;
}

Tensor normalize_cuda(const Tensor& levels, const Tensor& tables, bool channels_last) {
  const NormalizeGeometry g = normalize_geometry(levels, tables, channels_last);
  Tensor images =
      at::empty(levels.sizes(), tables.options(),
                channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  const c10::cuda::CUDAGuard guard(levels.device());
  const auto launch_words = [&](auto word) {
    using Word = decltype(word);
    C10_CUDA_CHECK(launch_normalize(
        g, levels.const_data_ptr<std::uint8_t>(), static_cast<const Word*>(tables.const_data_ptr()),
        static_cast<Word*>(images.mutable_data_ptr()), c10::cuda::getCurrentCUDAStream()));
  };
  if (tables.element_size() == 4)
    launch_words(std::uint32_t{});
  else
    launch_words(std::uint16_t{});
  return images;
}

void count_correct_cuda(const Tensor& count, const Tensor& logits, const Tensor& labels) {
  check_counted(count, logits, labels);
  const Tensor rows = logits.contiguous();
  const Tensor indexes = labels.contiguous();
  const c10::cuda::CUDAGuard guard(logits.device());
  C10_CUDA_CHECK(launch_count_correct(rows.size(0), rows.size(1), rows.const_data_ptr<float>(),
                                      indexes.const_data_ptr<std::int64_t>(),
                                      count.mutable_data_ptr<std::int64_t>(),
                                      c10::cuda::getCurrentCUDAStream()));
}

TORCH_LIBRARY_IMPL(millrace, CUDA, library) {
  library.impl("conv2d", conv2d_cuda);
  library.impl("conv2d_backward", conv2d_backward_cuda);
  library.impl("max_pool2d", max_pool2d_cuda);
  library.impl("max_pool2d_backward", max_pool2d_backward_cuda);
  library.impl("normalize", normalize_cuda);
  library.impl("count_correct", count_correct_cuda);
}

}  // namespace
}  // namespace millrace::train::native
