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

std::span<const std::uint8_t> mask_of(const Objects& objects, std::size_t object) {
  return std::span(objects.masks).subspan(object * objects.mask_bytes, objects.mask_bytes);
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

/// Appends an object as it is.
void append_copy(const Objects& from, std::size_t object, Objects& to) {
  const auto copy = [object](const auto& source, auto& target, std::size_t each) {
    const auto begin = source.begin() + static_cast<std::ptrdiff_t>(object * each);
    target.insert(target.end(), begin, begin + static_cast<std::ptrdiff_t>(each));
  };
  copy(from.boxes, to.boxes, 4);
  append_identity(from, object, from.weights[object], from.visibilities[object], to);
  copy(from.key_points, to.key_points, 3 * from.points);
  copy(from.masks, to.masks, from.mask_bytes);
}

/// Number of an object's pixels, and of those among them that others cover.
struct Coverage {
  std::uint32_t all = 0, covered = 0;
};

Coverage coverage_of(std::span<const std::uint8_t> mask, const std::uint8_t* cutout) {
  Coverage coverage;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    coverage.all += mask[i];
    coverage.covered += mask[i] & cutout[i];
  }
  return coverage;
}

/// Returns the edges of the smallest box around the pixels of a mask that are 1; there are some.
Rect bounds_of(std::span<const std::uint8_t> mask, int width) {
  const auto columns = static_cast<std::size_t>(width);
  Rect bounds{width, static_cast<int>(mask.size() / columns), 0, 0};
  for (int y = 0; !mask.empty(); ++y, mask = mask.subspan(columns)) {
    const auto row = mask.first(columns);
    const auto first = std::find(row.begin(), row.end(), 1);
    if (first == row.end()) continue;
    const auto behind = std::find(row.rbegin(), row.rend(), 1).base();
    bounds = {std::min(bounds.x0, static_cast<int>(first - row.begin())), std::min(bounds.y0, y),
              std::max(bounds.x1, static_cast<int>(behind - row.begin())), y + 1};
  }
  return bounds;
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

const std::uint8_t* cut_out(const Objects& objects, std::size_t sample,
                            std::span<const std::uint8_t> picked, Buffer& memory) {
  const std::size_t area = objects.mask_bytes;
  std::uint8_t* const cutout = memory.reserve(area);
  std::fill_n(cutout, area, std::uint8_t{0});
  const auto end = static_cast<std::size_t>(objects.offsets[sample + 1]);
  for (auto object = static_cast<std::size_t>(objects.offsets[sample]); object < end; ++object) {
    if (picked[object] == 0) continue;
    const auto mask = mask_of(objects, object);
    for (std::size_t i = 0; i < area; ++i) cutout[i] |= mask[i];
  }
  return cutout;
}

void ObjectMixer::append_uncovered(std::size_t sample, const std::uint8_t* cutout) {
  const Objects& from = objects_[0];
  Objects& to = objects_[1];
  const auto end = static_cast<std::size_t>(from.offsets[sample + 1]);
  for (auto object = static_cast<std::size_t>(from.offsets[sample]); object < end; ++object) {
    const Coverage coverage = coverage_of(mask_of(from, object), cutout);
    if (coverage.covered > 0 && coverage.covered == coverage.all) continue;
    append_copy(from, object, to);
    for (std::size_t i = to.key_points.size() - 3 * to.points; i < to.key_points.size(); i += 3) {
      const float x = to.key_points[i], y = to.key_points[i + 1];
      if (!is_inside({x, y}, {0, 0, size_.width, size_.height})) continue;
      const auto row = static_cast<std::ptrdiff_t>(y), column = static_cast<std::ptrdiff_t>(x);
      if (cutout[row * size_.width + column] != 0)
        to.key_points[i + 2] = std::min(to.key_points[i + 2], 1.0f);
    }
    if (coverage.covered == 0) continue;
    const std::span mask = std::span(to.masks).last(to.mask_bytes);
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = mask[i] & (cutout[i] ^ 1);
    const Rect bounds = bounds_of(mask, size_.width);
    const int edges[] = {bounds.x0, bounds.y0, bounds.x1, bounds.y1};
    std::copy_n(edges, 4, to.boxes.end() - 4);
    to.visibilities.back() *=
        static_cast<float>(coverage.all - coverage.covered) / static_cast<float>(coverage.all);
  }
}

void ObjectMixer::append_picked(std::size_t sample, std::span<const std::uint8_t> picked) {
  const Objects& from = objects_[0];
  Objects& to = objects_[1];
  const auto end = static_cast<std::size_t>(from.offsets[sample + 1]);
  for (auto object = static_cast<std::size_t>(from.offsets[sample]); object < end; ++object) {
    const auto mask = mask_of(from, object);
    // An object without a pixel would be a box with nothing inside.
    if (picked[object] != 0 && std::find(mask.begin(), mask.end(), 1) != mask.end())
      append_copy(from, object, to);
  }
}

void ObjectMixer::pasted(std::span<const millrace_part> parts,
                         std::span<const std::uint8_t> picked) {
  if (parts.empty()) return;
  begin_list(objects_[0], objects_[1]);
  auto part = parts.begin();
  for (std::size_t sample = 0; sample + 1 < objects_[0].offsets.size(); ++sample) {
    if (part == parts.end() || static_cast<std::size_t>(part->to) != sample) {
      append_sample(objects_[0], sample, objects_[1]);
      continue;
    }
    const auto from = static_cast<std::size_t>(part->from);
    append_uncovered(sample, cut_out(objects_[0], from, picked, cutout_));
    append_picked(from, picked);
    end_sample(objects_[1]);
    ++part;
  }
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
