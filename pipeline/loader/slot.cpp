// Lays out the parts of a batch in its block.
#include "pipeline/loader/slot.h"

#include <limits>

namespace millrace::pipeline {

void BatchContents::reserve(const std::shared_ptr<SlotMemory>& from, const BatchShape& shape) {
  const std::size_t count = shape.samples;
  classes = shape.classes;
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const std::size_t labels_at = aligned(count * shape.sample_bytes + kTailSlack);
  const std::size_t rows_at = labels_at + aligned(count * sizeof(std::int64_t));
  const std::size_t masks_at = rows_at + aligned(count * classes * sizeof(float));
  memory = SlotBlock(from, masks_at + count * shape.mask_bytes);
  samples = memory.data();
  labels = {reinterpret_cast<std::int64_t*>(samples + labels_at), count};
  probabilities = {reinterpret_cast<float*>(samples + rows_at), count * classes};
  masks = {samples + masks_at, count * shape.mask_bytes};
  indices.assign(count, 0);
  members.reserve(count, shape.members);
  if (shape.warps) warps.assign(9 * count, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace millrace::pipeline
