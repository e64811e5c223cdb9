// ResNet's blocks and layers.
#include "models/resnet.h"

#include <string>

#include "models/layers.h"

namespace millrace::train {
namespace {

namespace nn = torch::nn;

constexpr int kStemChannels = 64;

nn::Conv2d convolution(int in, int out, int kernel, int stride, int padding) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
}

nn::Conv2d convolution3x3(int in, int out, int stride = 1) {
  return convolution(in, out, 3, stride, 1);
}

nn::Conv2d convolution1x1(int in, int out, int stride = 1) {
  return convolution(in, out, 1, stride, 0);
}

/// Two or three convolutions with a skip connection.
class ResidualImpl : public nn::Module {
 public:
  /// `width`: channels inside the block; `out`: channels of its output.
  ResidualImpl(bool bottleneck, int in, int width, int out, int stride) {
    // Created first and registered last, as in torchvision, so that equal seeds give equal weights.
    nn::Sequential around{nullptr};
    if (stride != 1 || in != out)
      around = nn::Sequential(convolution1x1(in, out, stride), BatchNorm(out));
    if (bottleneck) {
      add(convolution1x1(in, width), width);
      add(convolution3x3(width, width, stride), width);
      add(convolution1x1(width, out), out);
    } else {
      add(convolution3x3(in, width, stride), width);
      add(convolution3x3(width, out), out);
    }
    if (!around.is_empty()) downsample_ = register_module("downsample", around);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor x = input;
    for (std::size_t i = 0; i < convolutions_.size(); ++i) {
      x = norms_[i](convolutions_[i](x));
      if (i + 1 < convolutions_.size()) x.relu_();
    }
    x += downsample_.is_empty() ? input : downsample_->forward(input);
    return x.relu_();
  }

 private:
  void add(const nn::Conv2d& convolution, int channels) {
    const std::string number = std::to_string(convolutions_.size() + 1);
    convolutions_.emplace_back(register_module("conv" + number, convolution));
    norms_.emplace_back(register_module("bn" + number, BatchNorm(channels)));
  }

  std::vector<nn::Conv2d> convolutions_;
  std::vector<BatchNorm> norms_;
  nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(Residual);

}  // namespace

ResNet::ResNet(const ResNetVariant& variant, ResNetStem stem, const ModelShape& shape)
    : stem_(stem) {
  conv1_ = register_module("conv1", stem == ResNetStem::cifar
                                        ? convolution3x3(shape.channels, kStemChannels)
                                        : convolution(shape.channels, kStemChannels, 7, 2, 3));
  bn1_ = register_module("bn1", BatchNorm(kStemChannels));
  int channels = kStemChannels;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const int width = kStemChannels << i;
    const int out = variant.bottleneck ? 4 * width : width;
    for (int block = 0; block < variant.blocks[i]; ++block) {
      const int stride = i > 0 && block == 0 ? 2 : 1;
      layers_[i]->push_back(Residual(variant.bottleneck, channels, width, out, stride));
      channels = out;
    }
    register_module("layer" + std::to_string(i + 1), layers_[i]);
  }
  fc_ = register_module("fc", nn::Linear(channels, shape.classes));
  init_convolutions(*this);
}

torch::Tensor ResNet::forward(const torch::Tensor& images) {
  torch::Tensor x = bn1_(conv1_(images)).relu_();
  if (stem_ == ResNetStem::imagenet)
    x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  for (nn::Sequential& layer : layers_) x = layer->forward(x);
  return fc_(torch::flatten(torch::adaptive_avg_pool2d(x, {1, 1}), 1));
}

}  // namespace millrace::train
