// Lays out the parts of a batch in its block, and closes gaps in them.
#include "pipeline/loader/slot.h"

#include <algorithm>
#include <cstring>
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

void BatchContents::leave_out(std::span<const std::int64_t> places) {
  valid = id.count;
  if (places.empty()) return;
  auto gap = places.begin();
  std::size_t kept = 0;
  for (std::size_t place = 0; place < static_cast<std::size_t>(id.count); ++place) {
    if (gap != places.end() && static_cast<std::size_t>(*gap) == place) {
      ++gap;
      continue;
    }
    if (kept != place) {
      std::memcpy(samples + kept * sample_bytes, samples + place * sample_bytes, sample_bytes);
      if (mask_bytes > 0)
        std::memcpy(&masks[kept * mask_bytes], &masks[place * mask_bytes], mask_bytes);
      members.move(place, kept);
      labels[kept] = labels[place];
      indices[kept] = indices[place];
      if (!warps.empty()) std::copy_n(&warps[9 * place], 9, &warps[9 * kept]);
      std::copy_n(probabilities.begin() + static_cast<std::ptrdiff_t>(place * classes), classes,
                  probabilities.begin() + static_cast<std::ptrdiff_t>(kept * classes));
    }
    ++kept;
  }
  valid = static_cast<std::int64_t>(kept);
}

}  // namespace millrace::pipeline
