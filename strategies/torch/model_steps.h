// A model's training step without loader or trainer, for benchmarks: one side of a comparison.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "models/classifier.h"
#include "models/registry.h"
#include "strategies/torch/optimizer.h"

namespace millrace::train {

class ModelSteps {
 public:
  /// Initial weights come from torch's generator, seeded with `seed` first, as PyTorch's do.
  /// SGD with lr 0.01 and momentum 0.9. Throws what make_model() throws.
  ModelSteps(const std::string& model, const ModelShape& shape, bool native, std::uint64_t seed);

  /// `images`: N x C x H x W as `shape` says. Returns the loss before the step.
  torch::Tensor forward(const torch::Tensor& images, const torch::Tensor& labels);
  /// Applies the gradients and drops them.
  void step();

 private:
  std::shared_ptr<Classifier> model_;
  std::unique_ptr<Optimizer> optimizer_;
};

/// One plane is at once planes and pixels; strides that say so make LibTorch's ops take its faster
/// way.
torch::Tensor as_pixels(const torch::Tensor& planes);

}  // namespace millrace::train

// For bench/step.py, which has LibTorch loaded by Python.
extern "C" {
/// Never deleted; `seed` for the weights. 10 classes. Null, with a line on stderr, where there is
/// no such model.
void* millrace_model_new(const char* model, std::int64_t channels, std::int64_t side, int native,
                         std::uint64_t seed);
/// One step on `batch` images, contiguous N x C x H x W; returns its loss.
float millrace_model_step(void* model, const float* images, std::int64_t channels,
                          std::int64_t side, const std::int64_t* labels, std::int64_t batch);
}
