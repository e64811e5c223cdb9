// Moves objects along parts, and chooses and writes those that are left.
#include "pipeline/targets/object_mixing.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "pipeline/targets/object_list.h"
#include "pipeline/targets/tracked_box.h"

namespace millrace::pipeline {
namespace {

TrackedBox box_of(const Objects& objects, std::size_t object) {
  const float* const edges = &objects.boxes[4 * object];
  return {edges[0], edges[1], edges[2], edges[3], objects.visibilities[object]};
}

/// Appends what an object is beside its place.
void append_identity(const Objects& from, std::size_t object, float weight, double visibility,
                     Objects& to) {
  to.classes.push_back(from.classes[object]);
  to.origins.push_back(from.origins[object]);
  to.samples.push_back(from.samples[object]);
  to.weights.push_back(weight);
  to.visibilities.push_back(static_cast<float>(visibility));
}

/// Appends an object's mask, moved as a part says.
void append_mask(const Objects& from, std::size_t object, const millrace_part& part, int width,
                 Objects& to) {
  const Rect& window = part.window;
  const auto area = static_cast<std::ptrdiff_t>(from.mask_bytes);
  const auto source = from.masks.begin() + static_cast<std::ptrdiff_t>(object) * area;
  to.masks.resize(to.masks.size() + from.mask_bytes, 0);
  const auto target = to.masks.end() - area;
  for (int y = window.y0; y < window.y1; ++y) {
    const std::ptrdiff_t row = std::ptrdiff_t{y} * width + window.x0;
    const std::ptrdiff_t source_row = row - std::ptrdiff_t{part.dy} * width - part.dx;
    std::copy_n(source + source_row, window.x1 - window.x0, target + row);
  }
}

/// Appends the objects that a part shows to the open sample of `to`.
void append_part(const Objects& from, const millrace_part& part, int width, Objects& to) {
  const auto sample = static_cast<std::size_t>(part.from);
  const auto begin = static_cast<std::size_t>(from.offsets[sample]);
  const auto end = static_cast<std::size_t>(from.offsets[sample + 1]);
  for (std::size_t object = begin; object < end; ++object) {
    TrackedBox box = box_of(from, object);
    box.x0 += part.dx;
    box.x1 += part.dx;
    box.y0 += part.dy;
    box.y1 += part.dy;
    box.clip(part.window);
    if (!(box.area() > 0)) continue;
    append_box(box, {}, {}, to);
    append_identity(from, object, from.weights[object] * static_cast<float>(part.weight),
                    box.visible, to);
    for (std::size_t i = object * from.points; i < (object + 1) * from.points; ++i) {
      const float* const point = &from.key_points[3 * i];
      const Point at{static_cast<double>(point[0]) + part.dx,
                     static_cast<double>(point[1]) + part.dy};
      append_point(at, is_inside(at, part.window) ? point[2] : 0, {}, {}, to);
    }
    if (from.mask_bytes > 0) append_mask(from, object, part, width, to);
  }
}

void begin_list(const Objects& like, Objects& objects) {
  objects.points = like.points;
  objects.mask_bytes = like.mask_bytes;
  clear(objects);
}

/// Fills `to` with the samples of `from`, whose rows have `width` pixels, after an op has put some
/// of them together of `parts`.
void mix_objects(std::span<const millrace_part> parts, int width, const Objects& from,
                 Objects& to) {
  begin_list(from, to);
  auto part = parts.begin();
  for (std::size_t sample = 0; sample + 1 < from.offsets.size(); ++sample) {
    const auto is_next = [&] {
      return part != parts.end() && static_cast<std::size_t>(part->to) == sample;
    };
    if (!is_next()) {
      append_sample(from, sample, to);
      continue;
    }
    for (; is_next(); ++part) append_part(from, *part, width, to);
    end_sample(to);
  }
}

}  // namespace

TargetOptions before_mixing(const TargetOptions& options) {
  TargetOptions raw = options;
  raw.format = BoxFormat::xyxy;
  raw.relative = false;
  return raw;
}

void ObjectMixer::mixed(std::span<const millrace_part> parts) {
  if (parts.empty()) return;
  mix_objects(parts, size_.width, objects_[0], objects_[1]);
  std::swap(objects_[0], objects_[1]);
}

void hand_out(const Objects& from, const TargetOptions& options, Size size,
              std::span<const std::int64_t> without, Objects& to) {
  begin_list(from, to);
  auto left_out = without.begin();
  for (std::size_t sample = 0; sample + 1 < from.offsets.size(); ++sample) {
    if (left_out != without.end() && static_cast<std::size_t>(*left_out) == sample) {
      ++left_out;
      continue;
    }
    const auto end = static_cast<std::size_t>(from.offsets[sample + 1]);
    for (auto object = static_cast<std::size_t>(from.offsets[sample]); object < end; ++object) {
      const TrackedBox box = box_of(from, object);
      if (!is_left(box, options)) continue;
      append_box(box, options, size, to);
      append_identity(from, object, from.weights[object], box.visible, to);
      for (std::size_t i = object * from.points; i < (object + 1) * from.points; ++i) {
        const float* const point = &from.key_points[3 * i];
        append_point({point[0], point[1]}, point[2], options, size, to);
      }
      const auto mask = static_cast<std::ptrdiff_t>(object * from.mask_bytes);
      to.masks.insert(to.masks.end(), from.masks.begin() + mask,
                      from.masks.begin() + mask + static_cast<std::ptrdiff_t>(from.mask_bytes));
    }
    end_sample(to);
  }
}

}  // namespace millrace::pipeline
