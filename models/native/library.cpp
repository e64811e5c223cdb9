// Schemas and autograd of the native ops. millrace::conv2d and the others can be called from C++
// (models/native/ops.h) and, once this library is loaded, as torch.ops.millrace.conv2d. Kernels are
// registered in cpu_ops.cpp and, for CUDA, in the CUDA module.
#include <torch/library.h>
#include <torch/torch.h>

#include "models/native/ops.h"

TORCH_LIBRARY(millrace, library) {
  library.def(
      "conv2d(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
      "int[] dilation, int groups) -> Tensor");
  library.def(
      "conv2d_backward(Tensor gradient, Tensor input, Tensor weight, int[] stride, int[] padding, "
      "int[] dilation, int groups, bool[3] wanted) -> (Tensor, Tensor, Tensor)");
  library.def(
      "max_pool2d(Tensor input, int[] kernel, int[] stride, int[] padding, int[] dilation) -> "
      "(Tensor, Tensor)");
  library.def(
      "max_pool2d_backward(Tensor gradient, Tensor winners, Tensor input, int[] kernel, "
      "int[] stride, int[] padding, int[] dilation) -> Tensor");
  library.def(
      "conv_relu_pool(Tensor input, Tensor weight, Tensor? bias, int[] padding, int[] dilation, "
      "int groups) -> (Tensor, Tensor)");
  library.def(
      "conv_relu_pool_backward(Tensor gradient, Tensor winners, Tensor input, Tensor weight, "
      "int[] padding, int[] dilation, int groups, bool[3] wanted) -> (Tensor, Tensor, Tensor)");
}

namespace millrace::train::native {
namespace {

using at::IntArrayRef;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

/// Returns the op `name`, looked up once.
template <class Signature>
auto find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

OptionalTensor optional(const Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

/// Returns which of input, weight and bias need a gradient. A missing bias is skipped when
/// counting.
std::array<bool, 3> wanted_by(AutogradContext* context) {
  return {context->needs_input_grad(0), context->needs_input_grad(1),
          context->saved_data["bias"].toBool() && context->needs_input_grad(2)};
}

IntArrayRef numbers(AutogradContext* context, const char* name, std::vector<std::int64_t>& keep) {
  keep = context->saved_data[name].toIntVector();
  return keep;
}

struct Conv2d : torch::autograd::Function<Conv2d> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
                        IntArrayRef dilation, std::int64_t groups) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({input, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["dilation"] = dilation;
    context->saved_data["groups"] = groups;
    context->saved_data["bias"] = bias.has_value();
    return conv2d(input, weight, bias.value_or(Tensor()), stride, padding, dilation, groups);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op =
        find<Three(const Tensor&, const Tensor&, const Tensor&, IntArrayRef, IntArrayRef,
                   IntArrayRef, std::int64_t, std::array<bool, 3>)>("millrace::conv2d_backward");
    const variable_list saved = context->get_saved_variables();
    std::vector<std::int64_t> stride, padding, dilation;
    const auto [input, weight, bias] =
        op.call(gradients[0], saved[0], saved[1], numbers(context, "stride", stride),
                numbers(context, "padding", padding), numbers(context, "dilation", dilation),
                context->saved_data["groups"].toInt(), wanted_by(context));
    return {input, weight, bias, {}, {}, {}, {}};
  }
};

struct ConvReluPool2 : torch::autograd::Function<ConvReluPool2> {
  static variable_list forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                               const OptionalTensor& bias, IntArrayRef padding,
                               IntArrayRef dilation, std::int64_t groups) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto op =
        find<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const OptionalTensor&,
                                        IntArrayRef, IntArrayRef, std::int64_t)>(
            "millrace::conv_relu_pool");
    const auto [output, winners] = op.call(input, weight, bias, padding, dilation, groups);
    context->saved_data["bias"] = bias.has_value();
    context->save_for_backward({winners, input, weight});
    context->saved_data["padding"] = padding;
    context->saved_data["dilation"] = dilation;
    context->saved_data["groups"] = groups;
    context->mark_non_differentiable({winners});
    return {output, winners};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find<Three(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                      IntArrayRef, IntArrayRef, std::int64_t, std::array<bool, 3>)>(
        "millrace::conv_relu_pool_backward");
    const variable_list saved = context->get_saved_variables();
    std::vector<std::int64_t> padding, dilation;
    const auto [input, weight, bias] =
        op.call(gradients[0], saved[0], saved[1], saved[2], numbers(context, "padding", padding),
                numbers(context, "dilation", dilation), context->saved_data["groups"].toInt(),
                wanted_by(context));
    return {input, weight, bias, {}, {}, {}};
  }
};

struct MaxPool2d : torch::autograd::Function<MaxPool2d> {
  static variable_list forward(AutogradContext* context, const Tensor& input, IntArrayRef kernel,
                               IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = find<std::tuple<Tensor, Tensor>(
        const Tensor&, IntArrayRef, IntArrayRef, IntArrayRef, IntArrayRef)>("millrace::max_pool2d");
    const auto [output, winners] = op.call(input, kernel, stride, padding, dilation);
    context->save_for_backward({winners, input});
    context->saved_data["kernel"] = kernel;
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["dilation"] = dilation;
    context->mark_non_differentiable({winners});
    return {output, winners};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op =
        find<Tensor(const Tensor&, const Tensor&, const Tensor&, IntArrayRef, IntArrayRef,
                    IntArrayRef, IntArrayRef)>("millrace::max_pool2d_backward");
    const variable_list saved = context->get_saved_variables();
    std::vector<std::int64_t> kernel, stride, padding, dilation;
    return {op.call(gradients[0], saved[0], saved[1], numbers(context, "kernel", kernel),
                    numbers(context, "stride", stride), numbers(context, "padding", padding),
                    numbers(context, "dilation", dilation)),
            {},
            {},
            {},
            {}};
  }
};

Tensor conv2d_autograd(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                       IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                       std::int64_t groups) {
  return Conv2d::apply(input, weight, bias, stride, padding, dilation, groups);
}

std::tuple<Tensor, Tensor> max_pool2d_autograd(const Tensor& input, IntArrayRef kernel,
                                               IntArrayRef stride, IntArrayRef padding,
                                               IntArrayRef dilation) {
  variable_list both = MaxPool2d::apply(input, kernel, stride, padding, dilation);
  return {both[0], both[1]};
}

std::tuple<Tensor, Tensor> conv_relu_pool_autograd(const Tensor& input, const Tensor& weight,
                                                   const OptionalTensor& bias, IntArrayRef padding,
                                                   IntArrayRef dilation, std::int64_t groups) {
  variable_list both = ConvReluPool2::apply(input, weight, bias, padding, dilation, groups);
  return {both[0], both[1]};
}

TORCH_LIBRARY_IMPL(millrace, Autograd, library) {
  library.impl("conv2d", conv2d_autograd);
  library.impl("max_pool2d", max_pool2d_autograd);
  library.impl("conv_relu_pool", conv_relu_pool_autograd);
  // Makes second derivatives, which do not exist, an error instead of a wrong zero.
  for (const char* op : {"conv2d_backward", "max_pool2d_backward", "conv_relu_pool_backward"})
    library.impl(op, torch::autograd::autogradNotImplementedFallback());
}

}  // namespace

Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
              IntArrayRef padding, IntArrayRef dilation, std::int64_t groups) {
  static const auto op =
      find<Tensor(const Tensor&, const Tensor&, const OptionalTensor&, IntArrayRef, IntArrayRef,
                  IntArrayRef, std::int64_t)>("millrace::conv2d");
  return op.call(input, weight, optional(bias), stride, padding, dilation, groups);
}

Tensor max_pool2d(const Tensor& input, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation) {
  static const auto op = find<std::tuple<Tensor, Tensor>(
      const Tensor&, IntArrayRef, IntArrayRef, IntArrayRef, IntArrayRef)>("millrace::max_pool2d");
  return std::get<0>(op.call(input, kernel, stride, padding, dilation));
}

Tensor conv_relu_pool(const Tensor& input, const Tensor& weight, const Tensor& bias,
                      IntArrayRef padding, IntArrayRef dilation, std::int64_t groups) {
  static const auto op = find<std::tuple<Tensor, Tensor>(
      const Tensor&, const Tensor&, const OptionalTensor&, IntArrayRef, IntArrayRef, std::int64_t)>(
      "millrace::conv_relu_pool");
  return std::get<0>(op.call(input, weight, optional(bias), padding, dilation, groups));
}

}  // namespace millrace::train::native
