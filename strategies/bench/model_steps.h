// A model's training step without loader or trainer, for benchmarks.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "base/private_api.h"
#include "models/registry.h"
#include "strategies/torch/optimizer.h"

namespace millrace::train {

class ModelSteps {
 public:
  /// Initialises weights from torch's generator, seeded with `seed`, as PyTorch does. Uses SGD with
  /// lr 0.01 and momentum 0.9. Throws what make_model() throws.
  ModelSteps(const std::string& model, const ModelShape& shape, bool native, std::uint64_t seed,
             torch::Device device = torch::kCPU);

  /// Runs the forward pass on N x C x H x W `images` of the given shape, on the model's device.
  /// Returns the loss before the step.
  torch::Tensor forward(const torch::Tensor& images, const torch::Tensor& labels);
  /// Applies the gradients and clears them.
  void step();

 private:
  std::shared_ptr<Classifier> model_;
  std::unique_ptr<Optimizer> optimizer_;
};

/// Returns a single plane with strides of both planes and pixels, which lets LibTorch's ops take
/// their faster path.
torch::Tensor as_pixels(const torch::Tensor& planes);

}  // namespace millrace::train

// C interface for bench/step.py, which has LibTorch loaded by Python.
extern "C" {
/// Returns a model of 10 classes with weights from `seed`, which is never deleted. If the model
/// does not exist, prints a line to stderr and returns null.
MILLRACE_PRIVATE_API void* millrace_model_new(const char* model, std::int64_t channels,
                                              std::int64_t side, int native, std::uint64_t seed);
/// Takes one step on `batch` contiguous N x C x H x W images. Returns its loss.
MILLRACE_PRIVATE_API float millrace_model_step(void* model, const float* images,
                                               std::int64_t channels, std::int64_t side,
                                               const std::int64_t* labels, std::int64_t batch);
}
