// Architectures of the models.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "models/descriptions.h"
#include "models/layers.h"
#include "models/registry.h"

namespace millrace::train {

// Models whose layers follow one another.
//
// LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition" (1998),
// in the form of today's tutorials: ReLU and max pooling instead of sigmoids and averages. The
// studies use three variants of LeNet-5, which differ only in the convolutions.

/// The layers of a model for images of one shape. Names are those of the parameters.
struct SizedLayers {
  struct Convolution {
    std::string name;
    int in = 0;  ///< number of channels
    Size input;
    ConvolutionStage stage;
  };
  struct Linear {
    std::string name;
    std::int64_t in = 0, out = 0;
  };
  std::vector<Convolution> convolutions;
  std::vector<Linear> linear;
};

/// Returns the sizes of the layers. Throws UsageError, with `model`, its name, for images of which
/// the convolutions and poolings leave nothing.
MILLRACE_PRIVATE_API SizedLayers sized_layers(std::string_view model,
                                              const SequentialLayers& layers,
                                              const ModelShape& shape);

class Sequential : public Classifier {
 public:
  /// Throws what sized_layers() throws.
  Sequential(std::string_view model, const SequentialLayers& layers, const ModelShape& shape,
             bool native_ops);
  torch::Tensor forward(const torch::Tensor& images) override;

 private:
  struct Convolution {
    torch::nn::Conv2d layer;
    bool pools;
  };

  Ops ops_;
  std::vector<Convolution> convolutions_;
  std::vector<torch::nn::Linear> linear_;
};

// VGG-16 and VGG-19, and the variant that the studies train on CIFAR-10.
//
// Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition" (2014),
// configurations D and E. Names, batch norm and initialisation follow torchvision.

/// Linear layers after the five blocks.
enum class VggHead {
  imagenet,  ///< average pooling to 7x7, 4096, 4096, classes; ReLU and dropout (0.5) between
  cifar,     ///< average pooling to 1x1, classes
  study,     ///< average pooling to 1x1, 256, 128, classes; ReLU and dropout (0.5) between
};

/// features: five blocks of 64, 128, 256, 512 and 512 channels; 3x3 convolutions with padding 1,
/// and max pooling at the end of each block; then classifier. The heads imagenet and cifar are
/// initialised as in torchvision, the head study as PyTorch's layers.
class Vgg : public Classifier {
 public:
  /// `dropout` is a probability; negative: 0.5. Throws UsageError, with `name`, for images below
  /// 32x32.
  Vgg(std::string_view name, const VggLayers& layers, VggHead head, const ModelShape& shape,
      double dropout);
  torch::Tensor forward(const torch::Tensor& images) override;

 private:
  int pooled_;  ///< side of the maps that the head receives
  torch::nn::Sequential features_, classifier_;
};

// ResNet-18, -34 and -50.
//
// He, Zhang, Ren, Sun, "Deep residual learning for image recognition" (2015). Names and
// initialisation follow torchvision, which puts the bottleneck's stride on its 3x3 convolution.

/// First layers of the network.
enum class ResNetStem {
  imagenet,  ///< convolution 7x7 with stride 2, then max pooling 3x3 with stride 2
  cifar,     ///< convolution 3x3 with stride 1
};

/// conv1, bn1, layer1 to layer4 (64, 128, 256, 512 channels, four times as many after a bottleneck;
/// all but the first halve the sides), average pooling, fc. Takes images of any size.
class ResNet : public Classifier {
 public:
  ResNet(const ResNetLayers& layers, ResNetStem stem, const ModelShape& shape);
  torch::Tensor forward(const torch::Tensor& images) override;

 private:
  ResNetStem stem_;
  torch::nn::Conv2d conv1_{nullptr};
  BatchNorm bn1_{nullptr};
  std::array<torch::nn::Sequential, 4> layers_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace millrace::train
