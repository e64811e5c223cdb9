// Training steps of one model on given images.
#include "strategies/bench/model_steps.h"

#include <cstdio>

#include "millrace/error.h"
#include "strategies/torch/device.h"

namespace millrace::train {
namespace {

constexpr double kLearningRate = 0.01;

std::shared_ptr<Classifier> make(const std::string& name, const ModelShape& shape, bool native,
                                 std::uint64_t seed, torch::Device device) {
  torch::manual_seed(seed);
  ModelOptions options;
  options.native_ops = native;
  auto model = make_model(name, shape, options);
  model->to(device);
  if (!native && device.is_cpu()) prefer_channels_last(*model);
  return model;
}

std::unique_ptr<Optimizer> sgd_for(const torch::nn::Module& model) {
  NamedTensors named;
  for (const auto& parameter : model.named_parameters())
    named.emplace_back(parameter.key(), parameter.value());
  Recipe recipe({});
  recipe.set("train.momentum=0.9");
  return make_optimizer(recipe, std::move(named));
}

}  // namespace

ModelSteps::ModelSteps(const std::string& model, const ModelShape& shape, bool native,
                       std::uint64_t seed, torch::Device device)
    : model_(make(model, shape, native, seed, device)), optimizer_(sgd_for(*model_)) {}

torch::Tensor ModelSteps::forward(const torch::Tensor& images, const torch::Tensor& labels) {
  return at::cross_entropy_loss(model_->forward(images.is_cpu() ? as_pixels(images) : images),
                                labels);
}

void ModelSteps::step() {
  optimizer_->step(kLearningRate, {});
  for (torch::Tensor& parameter : model_->parameters()) parameter.mutable_grad().reset();
}

torch::Tensor as_pixels(const torch::Tensor& planes) {
  if (planes.size(1) != 1) return planes;
  return planes.as_strided(planes.sizes(), {planes.size(2) * planes.size(3), 1, planes.size(3), 1});
}

}  // namespace millrace::train

void* millrace_model_new(const char* model, std::int64_t channels, std::int64_t side, int native,
                         std::uint64_t seed) {
  millrace::train::ModelShape shape;
  shape.channels = static_cast<int>(channels);
  shape.input = {static_cast<int>(side), static_cast<int>(side)};
  try {
    return new millrace::train::ModelSteps(model, shape, native != 0, seed);
  } catch (const millrace::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return nullptr;
  }
}

float millrace_model_step(void* model, const float* images, std::int64_t channels,
                          std::int64_t side, const std::int64_t* labels, std::int64_t batch) {
  // Torch has no view of constant memory; nothing writes through these.
  const torch::Tensor pixels =
      torch::from_blob(const_cast<float*>(images), {batch, channels, side, side}, torch::kFloat);
  const torch::Tensor targets =
      torch::from_blob(const_cast<std::int64_t*>(labels), {batch}, torch::kLong);
  auto& steps = *static_cast<millrace::train::ModelSteps*>(model);
  const torch::Tensor loss = steps.forward(pixels, targets);
  loss.backward();
  steps.step();
  return loss.item<float>();
}
