// Moves the objects of a sample along its trail, and joins those of a batch.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "millrace/error.h"
#include "pipeline/loader/stages.h"
#include "pipeline/targets/homography.h"
#include "pipeline/targets/object_list.h"
#include "pipeline/targets/outline.h"

namespace millrace::pipeline {
namespace {

/// Most bytes that the masks of a sample's objects take.
constexpr std::size_t kMaxInstanceBytes = std::size_t{256} << 20;

}  // namespace

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
  worker.tracker.track(*annotations_, tracking_, index, image, worker.trail,
                       transform_->output().size, objects);
  if (has_instance_masks()) move_instance_masks(index, image, worker, objects, stop);
}

/// Fills the outlines of the objects that are left, and moves them along the sample's trail.
void Stages::move_instance_masks(std::uint64_t index, Size image, Worker& worker, Objects& objects,
                                 const std::atomic<bool>& stop) const {
  const auto first = static_cast<std::size_t>(objects.offsets.back());
  const std::size_t count = objects.classes.size(), bytes = objects.mask_bytes;
  if ((count - first) * bytes > kMaxInstanceBytes) {
    drop_open(objects);  // or the list would make room for their masks
    throw DataError(fmt::format("the masks of its {} objects take {:.0f} MB, more than {:.0f}",
                                count - first, static_cast<double>((count - first) * bytes) * 1e-6,
                                static_cast<double>(kMaxInstanceBytes) * 1e-6),
                    "lower the output's size, raise targets.min_area, or cut the image into parts");
  }
  objects.masks.resize(count * bytes);
  if (first == count) return;
  const Rect whole{0, 0, image.width, image.height};
  std::uint8_t* const filled = worker.instance.reserve(static_cast<std::size_t>(image.width) *
                                                       static_cast<std::size_t>(image.height));
  clear_pixels(whole, image, filled);
  for (std::size_t i = first; i < count && !stopped(stop); ++i) {
    const Rect inside = fill_outline(
        annotations_->outlines,
        annotations_->begin(index) + static_cast<std::size_t>(objects.origins[i]), image, filled);
    WholeImage mask(interleaved(filled, image, 1));
    transform_->move_mask(worker.trail, mask, 0, objects.masks.data() + i * bytes,
                          *worker.transform);
    clear_pixels(inside, image, filled);
  }
}

/// Fills `to` with the objects of all ranges, except those of the samples at the positions
/// `without`.
void Stages::join_objects(Slot& slot, std::span<const std::int64_t> without, Objects& to) const {
  to.points = annotations_->points;
  to.mask_bytes = instance_mask_bytes();
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
