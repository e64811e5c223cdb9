// Tensors that view a batch's slot, without copies (contract Zero copy). The batch must outlive
// them.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "millrace/loader.h"
#include "pipeline/loader/rank_slice.h"
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

}  // namespace millrace::train
