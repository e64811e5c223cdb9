// Models as strategies see them, and models by name.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "base/private_api.h"
#include "millrace/image.h"
#include "millrace/recipe.h"
#include "models/options.h"

namespace millrace::train {

// Interface between models and strategies: images in, one logit per class out.

/// Shape that a model is built for.
struct ModelShape {
  int channels = 1;  ///< channels of an image
  Size input;        ///< size of an image
  int classes = 10;
};

/// Base of all models. Children are registered under torchvision's names, so that weights can be
/// exchanged in both directions.
class Classifier : public torch::nn::Module {
 public:
  /// Returns N x classes logits for N x channels x height x width images in f32.
  virtual torch::Tensor forward(const torch::Tensor& images) = 0;

  /// Stops batch norms from counting batches (num_batches_tracked), which takes a device a launch
  /// each. From then on call count_batch() after every forward() in training.
  void count_together();
  /// Counts a batch in all batch norms at once. Does nothing before count_together().
  void count_batch();

 private:
  std::vector<torch::Tensor> counters_;
};

// Models by the names of models/descriptions.cpp. One whose layers are of another kind than theirs
// is a class like those in architectures.h, and a function of Maker in registry.cpp.

/// Returns the options that the keys of [model] give. model.ops must be resolved.
ModelOptions model_options(const Recipe& recipe);

/// Builds the model `name`, initialised from torch's current generator. Throws UsageError for an
/// unknown name, a shape that the model cannot take, or an option that it does not have.
MILLRACE_PRIVATE_API std::shared_ptr<Classifier> make_model(const std::string& name,
                                                            const ModelShape& shape,
                                                            const ModelOptions& options = {});

}  // namespace millrace::train
