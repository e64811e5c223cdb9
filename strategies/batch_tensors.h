// A batch as torch sees it: views of its slot, no copies.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "pipeline/loader.h"
#include "strategies/strategy.h"

namespace millrace {

/// Samples [begin, end) of a batch.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
};

/// The samples of replica `index` of `count`: what a rank of that number would get. Slices of a
/// batch whose samples were mixed in pairs need no even borders here, as they are already mixed.
Slice slice_of(const Batch& batch, int index, int count);

/// N x channels x height x width, f32. Throws UsageError where the batch does not hold what
/// `options` say. The batch must outlive it.
torch::Tensor images_of(const Batch& batch, Slice slice, const StrategyOptions& options);
/// N labels. The batch must outlive them.
torch::Tensor labels_of(const Batch& batch, Slice slice);
/// What the loss is taken against: labels, or the probabilities (N x classes) that ops have made of
/// them. The batch must outlive them.
torch::Tensor targets_of(const Batch& batch, Slice slice);

}  // namespace millrace
