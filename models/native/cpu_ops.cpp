// Native ops on CPU tensors: validates tensors, allocates results and runs kernels on LibTorch's
// threads.

#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <string>

#include "millrace/error.h"
#include "models/native/kernels.h"
#include "models/native/ops.h"

namespace millrace::train::native {

// Validates tensors and converts them to views.

namespace {

[[noreturn]] void refuse(const char* op, const std::string& what) {
  throw UsageError(
      std::string("native ") + op + ": " + what,
      "docs/reference/native-ops.md lists what is supported; model.ops=torch takes the rest");
}

Pair pair_of(const char* op, at::IntArrayRef values) {
  if (values.size() != 2)
    refuse(op, "takes 2 numbers per argument, not " + std::to_string(values.size()));
  return {values[0], values[1]};
}

std::string sizes_of(const at::Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.sizes()) {
    if (!text.empty()) text += 'x';
    text += std::to_string(size);
  }
  return text;
}

void check_images(const char* op, const at::Tensor& input) {
  if (input.dim() != 4)
    refuse(op, "takes batch x channels x height x width, not " + sizes_of(input));
  if (input.scalar_type() != at::kFloat && input.scalar_type() != at::kDouble)
    refuse(op, std::string("takes f32 and f64, not ") + c10::toString(input.scalar_type()));
}

/// Throws unless weight and bias have the images' device and type.
void check_alike(const at::Tensor& input, const at::Tensor& other, const char* name) {
  if (other.scalar_type() != input.scalar_type() || other.device() != input.device())
    refuse("conv2d", std::string(name) + " is " + c10::toString(other.scalar_type()) + " on " +
                         other.device().str() + ", the images are " +
                         c10::toString(input.scalar_type()) + " on " + input.device().str());
}

}  // namespace

ConvGeometry conv_geometry(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                           at::IntArrayRef dilation, std::int64_t groups) {
  constexpr const char* kOp = "conv2d";
  check_images(kOp, input);
  check_alike(input, weight, "the weight");
  if (weight.dim() != 4)
    refuse(kOp, "takes a weight of out x in / groups x height x width, not " + sizes_of(weight));
  ConvGeometry g{.batch = input.size(0),
                 .in = input.size(1),
                 .out = weight.size(0),
                 .input = {input.size(2), input.size(3)},
                 .output = {},
                 .kernel = {weight.size(2), weight.size(3)},
                 .stride = pair_of(kOp, stride),
                 .padding = pair_of(kOp, padding),
                 .dilation = pair_of(kOp, dilation),
                 .groups = groups};
  complete(g);
  if (weight.size(1) != g.group_in())
    refuse(kOp, "a weight of " + sizes_of(weight) + " in " + std::to_string(groups) +
                    " groups does not take " + std::to_string(g.in) + " channels");
  if (bias.defined()) {
    check_alike(input, bias, "the bias");
    if (bias.dim() != 1 || bias.size(0) != g.out)
      refuse(kOp, "the bias is " + sizes_of(bias) + ", the output has " + std::to_string(g.out) +
                      " channels");
  }
  return g;
}

PoolGeometry pool_geometry(const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride,
                           at::IntArrayRef padding, at::IntArrayRef dilation) {
  constexpr const char* kOp = "max_pool2d";
  check_images(kOp, input);
  PoolGeometry g{.batch = input.size(0),
                 .channels = input.size(1),
                 .input = {input.size(2), input.size(3)},
                 .output = {},
                 .kernel = pair_of(kOp, kernel),
                 .stride = pair_of(kOp, stride),
                 .padding = pair_of(kOp, padding),
                 .dilation = pair_of(kOp, dilation)};
  complete(g);
  return g;
}

namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

void on_torchs_threads(std::int64_t count, const Tasks& tasks) {
  at::parallel_for(0, count, /*grain_size=*/1, tasks);
}

/// Allocates a tensor with strides in the order channels, height, width, batch.
Tensor batch_last(IntArrayRef sizes, const at::TensorOptions& options) {
  return at::empty({sizes[1], sizes[2], sizes[3], sizes[0]}, options).permute({3, 0, 1, 2});
}

/// Allocates a tensor of `sizes` in the memory order of `like`.
Tensor empty_as(const Tensor& like, IntArrayRef sizes) {
  if (like.is_contiguous()) return at::empty(sizes, like.options());
  if (like.is_contiguous(at::MemoryFormat::ChannelsLast))
    return at::empty(sizes, like.options(), at::MemoryFormat::ChannelsLast);
  if (like.permute({1, 2, 3, 0}).is_contiguous()) return batch_last(sizes, like.options());
  return at::empty(sizes, like.options());
}

std::array<std::int64_t, 4> output_sizes(const ConvGeometry& g) {
  return {g.batch, g.out, g.output.h, g.output.w};
}

/// Calls `work` with a value of the tensor's element type.
template <class Work>
void with_type(const Tensor& tensor, const Work& work) {
  if (tensor.scalar_type() == at::kFloat)
    work(float{});
  else
    work(double{});
}

template <class T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

Tensor contiguous(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->contiguous() : Tensor();
}

Tensor conv2d_cpu(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                  IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                  std::int64_t groups) {
  const Tensor rows = contiguous(bias);
  const ConvGeometry g = conv_geometry(input, weight, rows, stride, padding, dilation, groups);
  const Tensor weights = weight.contiguous();
  Tensor output = empty_as(input, output_sizes(g));
  with_type(input, [&](auto type) {
    using T = decltype(type);
    conv_forward(g, view_of<T>(input), weights.const_data_ptr<T>(), data_or_null<T>(rows),
                 mutable_view_of<T>(output), on_torchs_threads);
  });
  return output;
}

/// Tensors for the requested gradients of input, weight and bias; the others stay undefined.
struct Gradients {
  Tensor input, weight, bias;

  Gradients(const ConvGeometry& g, const Tensor& image, const Tensor& weights,
            std::array<bool, 3> wanted) {
    if (wanted[0]) input = empty_as(image, image.sizes());
    if (wanted[1]) weight = at::empty(weights.sizes(), weights.options());
    if (wanted[2]) bias = at::empty({g.out}, weights.options());
  }

  template <class T>
  ConvGradients<T> pointers() const {
    return {input.defined() ? mutable_view_of<T>(input) : View<T>{},
            weight.defined() ? weight.mutable_data_ptr<T>() : nullptr,
            bias.defined() ? bias.mutable_data_ptr<T>() : nullptr};
  }
};

std::tuple<Tensor, Tensor, Tensor> conv2d_backward_cpu(const Tensor& gradient, const Tensor& input,
                                                       const Tensor& weight, IntArrayRef stride,
                                                       IntArrayRef padding, IntArrayRef dilation,
                                                       std::int64_t groups,
                                                       std::array<bool, 3> wanted) {
  const ConvGeometry g = conv_geometry(input, weight, {}, stride, padding, dilation, groups);
  const Tensor weights = weight.contiguous();
  const Gradients result(g, input, weights, wanted);
  with_type(input, [&](auto type) {
    using T = decltype(type);
    conv_backward(g, view_of<T>(input), weights.const_data_ptr<T>(), view_of<T>(gradient),
                  result.pointers<T>(), on_torchs_threads);
  });
  return {result.input, result.weight, result.bias};
}

constexpr std::array<std::int64_t, 2> kNoStride{1, 1};

ConvReluPool fused(const Tensor& input, const Tensor& weight, const Tensor& bias,
                   IntArrayRef padding, IntArrayRef dilation, std::int64_t groups) {
  const ConvReluPool op{conv_geometry(input, weight, bias, kNoStride, padding, dilation, groups)};
  if (!can_fuse(op.conv))
    throw UsageError(
        "native conv_relu_pool: needs padding within the kernel's reach and an output "
        "of at least 2x2",
        "call conv2d, relu and max_pool2d one by one");
  return op;
}

std::tuple<Tensor, Tensor> conv_relu_pool_cpu(const Tensor& input, const Tensor& weight,
                                              const OptionalTensor& bias, IntArrayRef padding,
                                              IntArrayRef dilation, std::int64_t groups) {
  const Tensor rows = contiguous(bias);
  const ConvReluPool op = fused(input, weight, rows, padding, dilation, groups);
  const Tensor weights = weight.contiguous();
  const Pair size = op.pooled();
  Tensor output = batch_last({op.conv.batch, op.conv.out, size.h, size.w}, input.options());
  Tensor winners;
  with_type(input, [&](auto type) {
    using T = decltype(type);
    winners = at::empty({op.winner_bytes<T>()}, input.options().dtype(at::kByte));
    conv_relu_pool_forward(op, view_of<T>(input), weights.const_data_ptr<T>(),
                           data_or_null<T>(rows), mutable_view_of<T>(output),
                           winners.mutable_data_ptr<std::uint8_t>(), on_torchs_threads);
  });
  return {output, winners};
}

std::tuple<Tensor, Tensor, Tensor> conv_relu_pool_backward_cpu(
    const Tensor& gradient, const Tensor& winners, const Tensor& input, const Tensor& weight,
    IntArrayRef padding, IntArrayRef dilation, std::int64_t groups, std::array<bool, 3> wanted) {
  const ConvReluPool op = fused(input, weight, {}, padding, dilation, groups);
  const Tensor weights = weight.contiguous();
  const Gradients result(op.conv, input, weights, wanted);
  with_type(input, [&](auto type) {
    using T = decltype(type);
    conv_relu_pool_backward(op, view_of<T>(input), weights.const_data_ptr<T>(),
                            view_of<T>(gradient), winners.const_data_ptr<std::uint8_t>(),
                            result.pointers<T>(), on_torchs_threads);
  });
  return {result.input, result.weight, result.bias};
}

std::tuple<Tensor, Tensor> max_pool2d_cpu(const Tensor& input, IntArrayRef kernel,
                                          IntArrayRef stride, IntArrayRef padding,
                                          IntArrayRef dilation) {
  const PoolGeometry g = pool_geometry(input, kernel, stride, padding, dilation);
  Tensor output = empty_as(input, {g.batch, g.channels, g.output.h, g.output.w});
  Tensor winners =
      at::empty_strided(output.sizes(), output.strides(), input.options().dtype(at::kInt));
  with_type(input, [&](auto type) {
    using T = decltype(type);
    max_pool_forward(g, view_of<T>(input), mutable_view_of<T>(output),
                     mutable_view_of<std::int32_t>(winners), on_torchs_threads);
  });
  return {output, winners};
}

Tensor max_pool2d_backward_cpu(const Tensor& gradient, const Tensor& winners, const Tensor& input,
                               IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                               IntArrayRef dilation) {
  const PoolGeometry g = pool_geometry(input, kernel, stride, padding, dilation);
  Tensor result = empty_as(input, input.sizes());
  with_type(input, [&](auto type) {
    using T = decltype(type);
    max_pool_backward(g, view_of<T>(gradient), view_of<std::int32_t>(winners),
                      mutable_view_of<T>(result), on_torchs_threads);
  });
  return result;
}

TORCH_LIBRARY_IMPL(millrace, CPU, library) {
  library.impl("conv2d", conv2d_cpu);
  library.impl("conv2d_backward", conv2d_backward_cpu);
  library.impl("max_pool2d", max_pool2d_cpu);
  library.impl("max_pool2d_backward", max_pool2d_backward_cpu);
  library.impl("conv_relu_pool", conv_relu_pool_cpu);
  library.impl("conv_relu_pool_backward", conv_relu_pool_backward_cpu);
}

}  // namespace
}  // namespace millrace::train::native
