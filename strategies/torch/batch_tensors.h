// Tensors that view a batch's slot, without copies (contract Zero copy). The batch must outlive
// them.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "millrace/loader.h"
#include "pipeline/loader/sampler.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// Returns the slice that holds the whole batch.
pipeline::Slice whole(const Batch& batch);

/// Returns N x channels x height x width images, f32 or u8 according to options.dtype. Throws
/// UsageError if the batch does not match `options`.
torch::Tensor images_of(const Batch& batch, pipeline::Slice slice, const StrategyOptions& options);
/// Returns N labels.
torch::Tensor labels_of(const Batch& batch, pipeline::Slice slice);
/// Returns the targets of the loss: labels, or the probabilities (N x classes) that ops made of
/// them.
torch::Tensor targets_of(const Batch& batch, pipeline::Slice slice);

// Normalisation on the device (output.normalize=device): converts levels 0..255 to the model's
// values there, so that a quarter of the bytes is sent.

/// Computes (level / 255 - mean) / std, rounding every operation to f32. Devices that round to
/// nearest give the bits of augment/plan/store.h.
class Normalization {
 public:
  Normalization(const StrategyOptions& options, torch::Device device);

  /// Converts N x channels x height x width images on the device. Returns f32 unchanged.
  torch::Tensor operator()(const torch::Tensor& images) const;

 private:
  torch::Tensor levels_, mean_, std_;  ///< undefined for f32; shape 1 or 1 x channels x 1 x 1
};

}  // namespace millrace::train
