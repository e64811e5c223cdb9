// Initialisation of models, and checks that several of them share.
#pragma once

#include <torch/torch.h>

#include <string_view>

#include "millrace/image.h"

namespace millrace::train {

/// Initialises as torchvision: convolutions normal with He's standard deviation over fan-out (He et
/// al., "Delving deep into rectifiers", 2015), and their biases 0. Leaves batch norms at 1 and 0,
/// and linear layers as they are.
void init_convolutions(torch::nn::Module& model);
/// Initialises linear layers as torchvision's VGG: normal with this standard deviation, biases 0.
void init_linear_layers(torch::nn::Module& model, double deviation);

/// Replaces the weights of convolutions and linear layers, and sets their biases to 0. kaiming:
/// He's normal over fan-in; xavier: Glorot and Bengio's uniform (2010); default: changes nothing.
/// Throws UsageError for another name.
void initialise(torch::nn::Module& model, std::string_view init);

/// Throws UsageError, with the model's name, for images with a side of less than `least` pixels.
void require_side(std::string_view model, Size input, int least);

}  // namespace millrace::train
