// Initialises layer by layer, consuming torch's generator in Python's order.
#include "models/init.h"

#include <string>

#include "millrace/error.h"

namespace millrace::train {
namespace {

/// Calls `set(weight, bias)` for every layer of one kind, in the order of Python's modules(): equal
/// seeds then give equal weights.
template <class Layer, class Set>
void for_each(torch::nn::Module& model, const Set& set) {
  for (const auto& module : model.modules(/*include_self=*/false))
    if (auto* layer = module->as<Layer>()) set(layer->weight, layer->bias);
}

void zero(torch::Tensor& bias) {
  if (bias.defined()) torch::nn::init::zeros_(bias);
}

}  // namespace

void init_convolutions(torch::nn::Module& model) {
  for_each<torch::nn::Conv2d>(model, [](torch::Tensor& weight, torch::Tensor& bias) {
    torch::nn::init::kaiming_normal_(weight, 0, torch::kFanOut, torch::kReLU);
    zero(bias);
  });
}

void init_linear_layers(torch::nn::Module& model, double deviation) {
  for_each<torch::nn::Linear>(model, [=](torch::Tensor& weight, torch::Tensor& bias) {
    torch::nn::init::normal_(weight, 0, deviation);
    zero(bias);
  });
}

void initialise(torch::nn::Module& model, std::string_view init) {
  if (init == "default") return;
  if (init != "kaiming" && init != "xavier")
    throw UsageError("model.init=" + std::string(init) + ": there is no such initialisation",
                     "use default, kaiming or xavier");
  const auto set = [&](torch::Tensor& weight, torch::Tensor& bias) {
    if (init == "kaiming")
      torch::nn::init::kaiming_normal_(weight, 0, torch::kFanIn, torch::kReLU);
    else
      torch::nn::init::xavier_uniform_(weight);
    zero(bias);
  };
  for_each<torch::nn::Conv2d>(model, set);
  for_each<torch::nn::Linear>(model, set);
}

void require_side(std::string_view model, Size input, int least) {
  if (input.width >= least && input.height >= least) return;
  const std::string side = std::to_string(least);
  throw UsageError("model.name=" + std::string(model) + " takes images of at least " + side + "x" +
                       side + " pixels, these are " + std::to_string(input.width) + "x" +
                       std::to_string(input.height),
                   "enlarge them with a resize in [[augment]]");
}

}  // namespace millrace::train
