// Moves the objects of a sample along its trail, and joins those of a batch.

#include <algorithm>
#include <array>

#include "pipeline/loader/stages.h"
#include "pipeline/targets/homography.h"
#include "pipeline/targets/object_list.h"
#include "pipeline/targets/object_masks.h"

namespace millrace::pipeline {

/// Notes the warps of a sample, and moves its objects along its trail.
void Stages::track(std::uint64_t index, std::int64_t place, Size image, Slot& slot, Worker& worker,
                   const std::atomic<bool>& stop) const {
  if (options_.warps) {
    const std::array<float, 9> map = centre_map(worker.trail);
    std::copy(map.begin(), map.end(), slot.warps.begin() + 9 * place);
  }
  if (annotations_ == nullptr) return;
  Objects& objects = slot.range_objects[static_cast<std::size_t>(place / slot.grain)];
  drop_open(objects);  // of an attempt that failed
  worker.tracker.track(*annotations_, tracking_, index, image, worker.trail, slot.size, objects);
  if (has_instance_masks())
    append_masks(
        *annotations_, index, image, worker.trail, *slot.transform, *worker.transform,
        worker.instance, [&] { return stopped(stop); }, objects);
}

/// Fills `to` with the objects of all ranges, except those of the samples at the positions
/// `without`.
void Stages::join_objects(Slot& slot, std::span<const std::int64_t> without, Objects& to) const {
  to.points = annotations_->points;
  to.mask_bytes = instance_mask_bytes(slot.size);
  clear(to);
  for (std::size_t unit = slot.units.size(); unit < slot.range_objects.size(); ++unit)
    clear(slot.range_objects[unit]);  // it may hold masks of a batch of more ranges
  auto failed = without.begin();
  std::int64_t place = 0;
  for (std::size_t unit = 0; unit < slot.units.size(); ++unit) {
    const Objects& range = slot.range_objects[unit];
    for (std::size_t i = 0; i + 1 < range.offsets.size(); ++i, ++place) {
      if (failed != without.end() && *failed == place)
        ++failed;
      else
        append_sample(range, i, to);
    }
  }
}

}  // namespace millrace::pipeline
