// Descriptions of the sequential models, and the model that is made from one.
#include "models/sequential.h"

#include <algorithm>
#include <map>

namespace millrace::train {
namespace {

constexpr int kPool = 2;

const std::map<std::string_view, SequentialLayers>& descriptions() {
  static const std::vector<int> lenet_hidden{120, 84};
  static const std::map<std::string_view, SequentialLayers> table{
      {"lenet5", {{{6, 5, 2, true}, {16, 5, 0, true}}, lenet_hidden}},        // 28x28: 400 features
      {"lenet5_plain", {{{6, 3, 0, true}, {16, 3, 0, true}}, lenet_hidden}},  // 28x28: 400 features
      {"lenet5_cifar",
       {{{6, 3, 1, true}, {16, 3, 1, true}}, lenet_hidden}},  // 32x32: 1024 features
      {"linear", {}},
      {"mlp", {{}, {128}}},
      {"simple_conv", {{{6, 3, 1, false}}, {128}}},
  };
  return table;
}

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

const SequentialLayers* sequential_layers(std::string_view model) {
  const auto found = descriptions().find(model);
  return found == descriptions().end() ? nullptr : &found->second;
}

SizedLayers layers_for(std::string_view model, const ModelShape& shape) {
  const SequentialLayers& layers = descriptions().at(model);
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

Sequential::Sequential(std::string_view model, const ModelShape& shape, bool native_ops)
    : ops_(native_ops) {
  const SizedLayers layers = layers_for(model, shape);
  for (const auto& [name, in, input, stage] : layers.convolutions) {
    const auto options =
        torch::nn::Conv2dOptions(in, stage.maps, stage.kernel).padding(stage.padding);
    convolutions_.push_back({register_module(name, torch::nn::Conv2d(options)), stage.pools});
  }
  for (const auto& [name, in, out] : layers.linear)
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

}  // namespace millrace::train
