// Validates tensors and converts them to views.
#include "models/native/tensors.h"

#include <string>

#include "millrace/error.h"

namespace millrace::train::native {
namespace {

[[noreturn]] void refuse(const char* op, const std::string& what) {
  throw UsageError(
      std::string("native ") + op + ": " + what,
      "docs/reference/native-ops.md lists what is supported; model.ops=torch takes the rest");
}

Pair pair_of(const char* op, at::IntArrayRef values) {
  if (values.size() != 2)
    refuse(op, "takes 2 numbers an argument, not " + std::to_string(values.size()));
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

}  // namespace millrace::train::native
