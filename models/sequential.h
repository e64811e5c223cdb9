// Models whose layers follow one another: LeNet-5, and the smaller ones that study S4 compares with
// it. A description lists a model's layers; the model itself and `bench ops` are made from it.
//
// LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition" (1998),
// in the form of today's tutorials: ReLU and max pooling instead of sigmoids and averages. The
// studies use three variants of LeNet-5, which differ only in the convolutions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/classifier.h"
#include "models/layers.h"

namespace millrace::train {

/// A convolution with square kernels, then ReLU and, if `pools`, 2x2 max pooling.
struct ConvolutionStage {
  int maps = 0;
  int kernel = 1;
  int padding = 0;  ///< zeros on each side
  bool pools = false;
};

/// Description of a model: convolutions, hidden linear layers with ReLU, and a linear layer from
/// there to the classes.
struct SequentialLayers {
  std::vector<ConvolutionStage> convolutions;
  std::vector<int> hidden;  ///< features of each hidden linear layer
};

/// Returns the description of a model of names.h, or null if it has none.
const SequentialLayers* sequential_layers(std::string_view model);

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

/// Returns the sizes of a described model's layers. Throws UsageError, with `model`, for images of
/// which the convolutions and poolings leave nothing.
SizedLayers layers_for(std::string_view model, const ModelShape& shape);

class Sequential : public Classifier {
 public:
  /// Makes a described model. Throws what layers_for() throws.
  Sequential(std::string_view model, const ModelShape& shape, bool native_ops);
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

}  // namespace millrace::train
