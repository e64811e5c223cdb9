#include "strategies/lenet_steps.h"

#include "models/memory_format.h"
#include "models/registry.h"

namespace millrace {
namespace {

std::shared_ptr<Classifier> make(bool native, std::uint64_t seed) {
  torch::manual_seed(seed);
  ModelShape shape;
  shape.input = {28, 28};
  shape.native_ops = native;
  auto model = make_model("lenet5", shape);
  if (!native) prefer_channels_last(*model);
  return model;
}

}  // namespace

LeNetSteps::LeNetSteps(bool native, std::uint64_t seed)
    : native_(native),
      model_(make(native, seed)),
      optimizer_(model_->parameters(), {.lr = 0.01, .momentum = 0.9}) {}

torch::Tensor LeNetSteps::forward(const torch::Tensor& images, const torch::Tensor& labels) {
  const torch::Tensor pixels = native_ ? images : as_pixels(images);
  return at::cross_entropy_loss(model_->forward(pixels), labels);
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
