// A batch as torch sees it: views of its slot, no copies.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "millrace/loader.h"
#include "pipeline/loader/rank_slice.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// All of a batch.
pipeline::Slice whole(const Batch& batch);

/// N x channels x height x width, f32 or u8 as options.dtype says. Throws UsageError where the
/// batch does not hold what `options` say. The batch must outlive it.
torch::Tensor images_of(const Batch& batch, pipeline::Slice slice, const StrategyOptions& options);
/// N labels. The batch must outlive them.
torch::Tensor labels_of(const Batch& batch, pipeline::Slice slice);
/// What the loss is taken against: labels, or the probabilities (N x classes) that ops have made of
/// them. The batch must outlive them.
torch::Tensor targets_of(const Batch& batch, pipeline::Slice slice);

}  // namespace millrace::train
