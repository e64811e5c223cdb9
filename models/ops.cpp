// Calls LibTorch's or the native ops.
#include "models/ops.h"

#include "millrace/error.h"
#include "models/native/ops.h"

namespace millrace::train {
namespace {

/// Parameters of a layer for the native ops: numeric zero padding only.
struct Layer {
  at::IntArrayRef stride, padding, dilation;
  std::int64_t groups;

  explicit Layer(const torch::nn::detail::ConvNdOptions<2>& options)
      : stride(*options.stride()), dilation(*options.dilation()), groups(options.groups()) {
    const auto* numbers = std::get_if<torch::ExpandingArray<2>>(&options.padding());
    if (numbers == nullptr ||
        !std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode()))
      throw UsageError("native conv2d: takes padding in pixels, with zeros",
                       "model.ops=torch takes the rest");
    padding = **numbers;
  }
  bool is_fusible(const torch::Tensor& weight) const {
    return stride == at::IntArrayRef({1, 1}) && padding[0] <= dilation[0] * (weight.size(2) - 1) &&
           padding[1] <= dilation[1] * (weight.size(3) - 1);
  }
};

constexpr std::int64_t kPoolSide = 2;

}  // namespace

torch::Tensor Ops::conv2d(const torch::Tensor& images, torch::nn::Conv2d& conv) const {
  if (!native_) return conv(images);
  const Layer layer(conv->options);
  return native::conv2d(images, conv->weight, conv->bias, layer.stride, layer.padding,
                        layer.dilation, layer.groups);
}

torch::Tensor Ops::max_pool2d(const torch::Tensor& images, std::int64_t kernel) const {
  if (!native_) return torch::max_pool2d(images, kernel);
  return native::max_pool2d(images, {kernel, kernel}, {kernel, kernel}, {0, 0}, {1, 1});
}

torch::Tensor Ops::conv_relu_pool(const torch::Tensor& images, torch::nn::Conv2d& conv) const {
  if (native_ && images.is_cpu()) {
    const Layer layer(conv->options);
    if (layer.is_fusible(conv->weight))
      return native::conv_relu_pool(images, conv->weight, conv->bias, layer.padding, layer.dilation,
                                    layer.groups);
  }
  return max_pool2d(torch::relu(conv2d(images, conv)), kPoolSide);
}

}  // namespace millrace::train
