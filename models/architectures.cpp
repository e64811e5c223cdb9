// Layers and blocks of the models.

#include "models/architectures.h"

#include <algorithm>
#include <array>
#include <string>

#include "models/layers.h"

namespace millrace::train {

// Sequential models.

namespace {

constexpr int kPool = 2;

/// Returns the side of a stage's maps for inputs of side `side`; 0 if nothing is left.
int side_after(const ConvolutionStage& stage, int side) {
  const int convolved = std::max(0, side + 2 * stage.padding - stage.kernel + 1);
  return stage.pools ? convolved / kPool : convolved;
}

int smallest_side(const SequentialLayers& layers) {
  const auto leaves_nothing = [&](int side) {
    return std::any_of(layers.convolutions.begin(), layers.convolutions.end(),
                       [&](const auto& stage) { return (side = side_after(stage, side)) == 0; });
  };
  int side = 1;
  while (leaves_nothing(side)) ++side;
  return side;
}

/// Returns "conv1" for the first layer, and so on.
std::string numbered(const char* kind, std::size_t index) {
  return kind + std::to_string(index + 1);
}

}  // namespace

SizedLayers sized_layers(std::string_view model, const SequentialLayers& layers,
                         const ModelShape& shape) {
  require_side(model, shape.input, smallest_side(layers));
  SizedLayers sized;
  int maps = shape.channels;
  Size size = shape.input;
  for (const ConvolutionStage& stage : layers.convolutions) {
    sized.convolutions.push_back({numbered("conv", sized.convolutions.size()), maps, size, stage});
    maps = stage.maps;
    size = {side_after(stage, size.width), side_after(stage, size.height)};
  }
  std::int64_t features = std::int64_t{maps} * size.width * size.height;
  for (const int hidden : layers.hidden) {
    sized.linear.push_back({numbered("fc", sized.linear.size()), features, hidden});
    features = hidden;
  }
  const std::string last = layers.hidden.empty() ? "fc" : numbered("fc", sized.linear.size());
  sized.linear.push_back({last, features, shape.classes});
  return sized;
}

Sequential::Sequential(std::string_view model, const SequentialLayers& layers,
                       const ModelShape& shape, bool native_ops)
    : ops_(native_ops) {
  const SizedLayers sized = sized_layers(model, layers, shape);
  for (const auto& [name, in, input, stage] : sized.convolutions) {
    const auto options =
        torch::nn::Conv2dOptions(in, stage.maps, stage.kernel).padding(stage.padding);
    convolutions_.push_back({register_module(name, torch::nn::Conv2d(options)), stage.pools});
  }
  for (const auto& [name, in, out] : sized.linear)
    linear_.emplace_back(register_module(name, torch::nn::Linear(in, out)));
}

torch::Tensor Sequential::forward(const torch::Tensor& images) {
  torch::Tensor x = images;
  for (auto& [layer, pools] : convolutions_)
    x = pools ? ops_.conv_relu_pool(x, layer) : ops_.conv_relu(x, layer);
  x = torch::flatten(x, 1);
  for (torch::nn::Linear& layer : linear_)
    x = &layer == &linear_.back() ? layer(x) : torch::relu(layer(x));
  return x;
}

// VGG's blocks and heads.

namespace {

namespace nn = torch::nn;

constexpr int kLeastSide = 32;  // five poolings reduce it to one pixel
constexpr int kFeatures = 512;
constexpr double kDropout = 0.5;
constexpr double kLinearDeviation = 0.01;

struct Block {
  int channels;
  int convolutions;
};

nn::ReLU relu() { return nn::ReLU(nn::ReLUOptions(/*inplace=*/true)); }

nn::Sequential make_features(const VggLayers& vgg, int channels) {
  const std::array<Block, 5> blocks{
      {{64, 2}, {128, 2}, {256, vgg.depth}, {512, vgg.depth}, {512, vgg.depth}}};
  nn::Sequential layers;
  for (const Block& block : blocks) {
    for (int i = 0; i < block.convolutions; ++i) {
      layers->push_back(nn::Conv2d(nn::Conv2dOptions(channels, block.channels, 3).padding(1)));
      if (vgg.batch_norm) layers->push_back(BatchNorm(block.channels));
      layers->push_back(relu());
      channels = block.channels;
    }
    layers->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(2)));
  }
  return layers;
}

/// Returns linear layers with ReLU and dropout between them.
nn::Sequential make_head(int features, const std::vector<int>& hidden, int classes,
                         double dropout) {
  nn::Sequential layers;
  for (const int width : hidden) {
    layers->push_back(nn::Linear(features, width));
    layers->push_back(relu());
    layers->push_back(Dropout(dropout));
    features = width;
  }
  layers->push_back(nn::Linear(features, classes));
  return layers;
}

std::vector<int> hidden_layers(VggHead head) {
  switch (head) {
    case VggHead::imagenet:
      return {4096, 4096};
    case VggHead::study:
      return {256, 128};
    case VggHead::cifar:
      break;
  }
  return {};
}

}  // namespace

Vgg::Vgg(std::string_view name, const VggLayers& layers, VggHead head, const ModelShape& shape,
         double dropout)
    : pooled_(head == VggHead::imagenet ? 7 : 1) {
  require_side(name, shape.input, kLeastSide);
  features_ = register_module("features", make_features(layers, shape.channels));
  classifier_ =
      register_module("classifier", make_head(kFeatures * pooled_ * pooled_, hidden_layers(head),
                                              shape.classes, dropout < 0 ? kDropout : dropout));
  if (head == VggHead::study) return;
  init_convolutions(*this);
  init_linear_layers(*this, kLinearDeviation);
}

torch::Tensor Vgg::forward(const torch::Tensor& images) {
  const torch::Tensor maps =
      torch::adaptive_avg_pool2d(features_->forward(images), {pooled_, pooled_});
  return classifier_->forward(torch::flatten(maps, 1));
}

// ResNet's blocks and layers.

namespace {

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

ResNet::ResNet(const ResNetLayers& layers, ResNetStem stem, const ModelShape& shape) : stem_(stem) {
  conv1_ = register_module("conv1", stem == ResNetStem::cifar
                                        ? convolution3x3(shape.channels, kStemChannels)
                                        : convolution(shape.channels, kStemChannels, 7, 2, 3));
  bn1_ = register_module("bn1", BatchNorm(kStemChannels));
  int channels = kStemChannels;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const int width = kStemChannels << i;
    const int out = layers.bottleneck ? 4 * width : width;
    for (int block = 0; block < layers.blocks[i]; ++block) {
      const int stride = i > 0 && block == 0 ? 2 : 1;
      layers_[i]->push_back(Residual(layers.bottleneck, channels, width, out, stride));
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
