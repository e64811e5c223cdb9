// LeNet's training step without loader or trainer, for benchmarks: one side of a comparison.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "models/classifier.h"
#include "strategies/optimizer.h"

namespace millrace {

class LeNetSteps {
 public:
  /// Initial weights come from torch's generator, seeded with `seed` first, as PyTorch's do.
  /// SGD with lr 0.01 and momentum 0.9.
  LeNetSteps(bool native, std::uint64_t seed);

  /// `images`: N x 1 x 28 x 28, contiguous. Returns the loss before the step.
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

}  // namespace millrace

// For bench/lenet_step.py, which has LibTorch loaded by Python.
extern "C" {
/// Never deleted; `seed` for the weights.
void* millrace_lenet_new(int native, std::uint64_t seed);
/// One step on `batch` images; returns its loss.
float millrace_lenet_step(void* lenet, const float* images, const std::int64_t* labels,
                          std::int64_t batch);
}
