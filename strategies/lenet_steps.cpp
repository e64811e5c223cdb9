#include "strategies/lenet_steps.h"

#include "models/registry.h"
#include "strategies/device.h"

namespace millrace {
namespace {

constexpr double kLearningRate = 0.01;

std::shared_ptr<Classifier> make(bool native, std::uint64_t seed) {
  torch::manual_seed(seed);
  ModelShape shape;
  shape.input = {28, 28};
  ModelOptions options;
  options.native_ops = native;
  auto model = make_model("lenet5", shape, options);
  if (!native) prefer_channels_last(*model);
  return model;
}

std::unique_ptr<Optimizer> sgd_for(const torch::nn::Module& model) {
  NamedTensors named;
  for (const auto& parameter : model.named_parameters())
    named.emplace_back(parameter.key(), parameter.value());
  StrategyOptions options;
  options.momentum = 0.9;
  return make_optimizer(options, std::move(named));
}

}  // namespace

LeNetSteps::LeNetSteps(bool native, std::uint64_t seed)
    : model_(make(native, seed)), optimizer_(sgd_for(*model_)) {}

torch::Tensor LeNetSteps::forward(const torch::Tensor& images, const torch::Tensor& labels) {
  return at::cross_entropy_loss(model_->forward(as_pixels(images)), labels);
}

void LeNetSteps::step() {
  optimizer_->step(kLearningRate, {});
  for (torch::Tensor& parameter : model_->parameters()) parameter.mutable_grad().reset();
}

torch::Tensor as_pixels(const torch::Tensor& planes) {
  if (planes.size(1) != 1) return planes;
  return planes.as_strided(planes.sizes(), {planes.size(2) * planes.size(3), 1, planes.size(3), 1});
}

}  // namespace millrace

void* millrace_lenet_new(int native, std::uint64_t seed) {
  return new millrace::LeNetSteps(native != 0, seed);
}

float millrace_lenet_step(void* lenet, const float* images, const std::int64_t* labels,
                          std::int64_t batch) {
  // Torch has no view of constant memory; nothing writes through these.
  const torch::Tensor pixels =
      torch::from_blob(const_cast<float*>(images), {batch, 1, 28, 28}, torch::kFloat);
  const torch::Tensor targets =
      torch::from_blob(const_cast<std::int64_t*>(labels), {batch}, torch::kLong);
  auto& steps = *static_cast<millrace::LeNetSteps*>(lenet);
  const torch::Tensor loss = steps.forward(pixels, targets);
  loss.backward();
  steps.step();
  return loss.item<float>();
}
