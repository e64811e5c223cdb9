// How models are initialised, and what several of them refuse.
#pragma once

#include <torch/torch.h>

#include <string_view>

#include "millrace/image.h"

namespace millrace::train {

/// torchvision's: convolutions normal with He's deviation over fan-out (He et al., "Delving deep
/// into rectifiers", 2015), their biases 0. Batch norms are left at 1 and 0, linear layers as they
/// are.
void init_convolutions(torch::nn::Module& model);
/// torchvision's VGG besides: linear layers normal with this deviation, their biases 0.
void init_linear_layers(torch::nn::Module& model, double deviation);

/// Replaces the weights of convolutions and linear layers, and sets their biases to 0.
/// kaiming: He's normal over fan-in; xavier: Glorot and Bengio's uniform (2010); default: leaves
/// everything as it is. Throws UsageError for another name.
void initialise(torch::nn::Module& model, std::string_view init);

/// Throws UsageError, naming `model`, for images with a side below `least` pixels.
void require_side(std::string_view model, Size input, int least);

}  // namespace millrace::train
