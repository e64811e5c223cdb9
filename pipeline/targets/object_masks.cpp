// Fills and moves the outlines of a sample's objects.
#include "pipeline/targets/object_masks.h"

#include <fmt/format.h>

#include <cstddef>

#include "millrace/error.h"
#include "pipeline/targets/object_list.h"
#include "pipeline/targets/outline.h"

namespace millrace::pipeline {
namespace {

/// Most bytes that the masks of a sample's objects take.
constexpr std::size_t kMaxBytes = std::size_t{256} << 20;

}  // namespace

void append_masks(const Annotations& annotations, std::uint64_t index, Size image,
                  const Trail& trail, const Transform& transform, Transform::Scratch& scratch,
                  Buffer& filled, const std::function<bool()>& stopped, Objects& to) {
  const auto first = static_cast<std::size_t>(to.offsets.back());
  const std::size_t count = to.classes.size(), bytes = to.mask_bytes;
  if ((count - first) * bytes > kMaxBytes) {
    drop_open(to);  // or the list would make room for their masks
    throw DataError(fmt::format("the masks of its {} objects take {:.0f} MB, more than {:.0f}",
                                count - first, static_cast<double>((count - first) * bytes) * 1e-6,
                                static_cast<double>(kMaxBytes) * 1e-6),
                    "lower the output's size, raise targets.min_area, or cut the image into parts");
  }
  to.masks.resize(count * bytes);
  if (first == count) return;
  const Rect whole{0, 0, image.width, image.height};
  std::uint8_t* const pixels = filled.reserve(static_cast<std::size_t>(image.width) *
                                              static_cast<std::size_t>(image.height));
  clear_pixels(whole, image, pixels);
  for (std::size_t i = first; i < count && !stopped(); ++i) {
    const Rect inside = fill_outline(
        annotations.outlines, annotations.begin(index) + static_cast<std::size_t>(to.origins[i]),
        image, pixels);
    WholeImage mask(interleaved(pixels, image, 1));
    transform.move_mask(trail, mask, 0, to.masks.data() + i * bytes, scratch);
    clear_pixels(inside, image, pixels);
  }
}

}  // namespace millrace::pipeline
